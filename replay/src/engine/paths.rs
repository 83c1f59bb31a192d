//! Paths as they are passed to the kernel.

use spoolscope_traces::records::REASON_UNSUPPORTED;

use crate::engine::verdict::Refusal;

/// Returns the part of a path below a directory; the empty directory is the spool itself.
pub fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(directory)? {
        rest if directory.is_empty() || rest.is_empty() => Some(rest),
        rest => rest.strip_prefix(b"/"),
    }
}

/// Returns whether a path has `..`: a moved directory may have another parent than its name shows.
pub fn leads_up(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part == b"..")
}

pub fn write_parts(buffer: *mut [u8; 8192], parts: &[&[u8]]) -> Result<i64, Refusal> {
    // SAFETY: the buffer belongs to the calling task, and nothing else refers to it now.
    let buffer = unsafe { &mut *buffer };
    let mut at = 0;
    for part in parts {
        let place = buffer
            .get_mut(at..at + part.len())
            .ok_or(REASON_UNSUPPORTED)?;
        place.copy_from_slice(part);
        at += part.len();
    }
    *buffer.get_mut(at).ok_or(REASON_UNSUPPORTED)? = 0;
    Ok(buffer.as_ptr() as i64)
}
