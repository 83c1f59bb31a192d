//! User code that made calls: stacks of user space, as places in files, and their functions.
//!
//! Addresses differ from process to process; a place in a file does not. The mappings of a process
//! are read when its first stack arrives, a moment after the call: nothing is known of a process
//! that has ended by then. Files stay open until their functions are looked up, at the end.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use object::read::{Object, ObjectSegment, ObjectSymbol, ReadCache};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use spoolscope_traces::records::STACK_FRAMES;

/// Words at the end of the stack that may hold a return address, as in user_stacks.bpf.h.
pub const NEAR_WORDS: usize = 16;
/// Most processes whose mappings are kept, and most files that are open.
const MOST_PROCESSES: usize = 4096;
const MOST_FILES: usize = 512;
/// Length of the longest call instruction that names its target by a register.
const CALL_BYTES: usize = 7;

/// A file that code lies in, and an executable mapping of it.
#[derive(Debug, Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    offset: u64,
    file: u32,
}

#[derive(Debug)]
struct Code {
    path: String,
    open: Option<File>,
}

/// A place in code: the number of its file, and the offset in it.
type Place = (u32, u64);

/// All stacks of a recording.
#[derive(Debug, Default)]
pub struct UserStacks {
    processes: FxHashMap<u32, Vec<Region>>,
    files: Vec<Code>,
    numbers: FxHashMap<(String, u64), u32>,
    stacks: FxHashMap<Vec<Place>, u32>,
    /// Functions that were looked up.
    named: FxHashMap<Place, Option<String>>,
    unknown: u64,
}

impl UserStacks {
    /// Return the number of the stack with these return addresses, the innermost first; `near` are
    /// the words at its end. None if the process has ended, or no frame lies in a file.
    pub fn number(&mut self, pid: u32, frames: &[u64], near: &[u64]) -> Option<u32> {
        let mut places: Vec<Place> = Vec::with_capacity(STACK_FRAMES);
        for (depth, address) in frames.iter().enumerate() {
            // The call was made by the instruction before the return address.
            let back = u64::from(depth > 0);
            match self.place(pid, address.saturating_sub(back)) {
                Some(place) => places.push(place),
                None => break,
            }
        }
        let Some(innermost) = places.first().copied() else {
            self.unknown += 1;
            return None;
        };
        let second = places.get(1).copied();
        if let Some(caller) = self
            .caller(pid, innermost, near)
            .filter(|at| Some(*at) != second)
        {
            places.insert(1, caller);
        }
        let next = self.stacks.len() as u32;
        Some(*self.stacks.entry(places).or_insert(next))
    }

    /// Forget a process: it runs another program, or its pid has a new process.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Return the return address that a function without a frame left: the first one into another
    /// file, or else the first one.
    fn caller(&mut self, pid: u32, innermost: Place, near: &[u64]) -> Option<Place> {
        let mut first = None;
        for word in near {
            let Some(place) = self.known(pid, word.saturating_sub(1)) else {
                continue;
            };
            if !self.follows_call((place.0, place.1 + 1)) {
                continue;
            }
            if place.0 != innermost.0 {
                return Some(place);
            }
            first = first.or(Some(place));
        }
        first
    }

    /// Return true if a call instruction ends there (x86-64); always false on other machines.
    fn follows_call(&self, (file, offset): Place) -> bool {
        let mut before = [0u8; CALL_BYTES];
        let file = self.files[file as usize].open.as_ref();
        let at = offset.checked_sub(CALL_BYTES as u64);
        let (Some(file), Some(at), true) = (file, at, cfg!(target_arch = "x86_64")) else {
            return false;
        };
        file.read_exact_at(&mut before, at).is_ok() && ends_with_call(&before)
    }

    fn place(&mut self, pid: u32, address: u64) -> Option<Place> {
        if let Some(place) = self.known(pid, address) {
            return Some(place);
        }
        self.read(pid); // the process is new, or has mapped more code since
        self.known(pid, address)
    }

    fn known(&self, pid: u32, address: u64) -> Option<Place> {
        let regions = self.processes.get(&pid)?;
        let after = regions.partition_point(|region| region.start <= address);
        let region = regions.get(after.checked_sub(1)?)?;
        let place = (region.file, address - region.start + region.offset);
        (address < region.end).then_some(place)
    }

    fn read(&mut self, pid: u32) {
        let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        if text.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&text);
        let mut regions = Vec::new();
        for line in text.lines() {
            let Some((start, end, offset, ino, path)) = parse(line) else {
                continue;
            };
            let key = (path.to_owned(), ino);
            let file = match self.numbers.get(&key) {
                Some(number) => *number,
                None => self.add(pid, key),
            };
            regions.push(Region {
                start,
                end,
                offset,
                file,
            });
        }
        if self.processes.len() >= MOST_PROCESSES {
            self.processes.clear();
        }
        self.processes.insert(pid, regions);
    }

    fn add(&mut self, pid: u32, (path, ino): (String, u64)) -> u32 {
        // Somebody may have put a pipe in its place, at which a plain open would wait for ever.
        let mut how = File::options();
        how.read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let open = how.open(format!("/proc/{pid}/root{path}")).ok();
        let is_it = |file: &File| {
            file.metadata()
                .is_ok_and(|found| found.is_file() && found.ino() == ino)
        };
        let number = self.files.len() as u32;
        self.files.push(Code {
            path: path.clone(),
            open: open.filter(|file| self.files.len() < MOST_FILES && is_it(file)),
        });
        self.numbers.insert((path, ino), number);
        number
    }

    /// Return the description of all stacks so far for a segment's meta data; null if there is
    /// none.
    pub fn take_json(&mut self) -> Value {
        if self.stacks.is_empty() && self.unknown == 0 {
            return Value::Null;
        }
        self.look_up();
        let mut stacks = vec![Value::Null; self.stacks.len()];
        for (places, number) in &self.stacks {
            let frames = places.iter().map(|place| {
                let name = self.named.get(place).cloned().flatten();
                json!([place.0, place.1, name])
            });
            stacks[*number as usize] = frames.collect::<Vec<_>>().into();
        }
        let files = self.files.iter().map(|code| {
            let build_id = code.open.as_ref().and_then(build_id);
            json!({"path": code.path, "build_id": build_id})
        });
        json!({
            "stacks": stacks, "files": files.collect::<Vec<_>>(), "unknown": self.unknown,
        })
    }

    /// Look up the functions of places that are new.
    fn look_up(&mut self) {
        let mut wanted: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
        for place in self.stacks.keys().flatten() {
            if !self.named.contains_key(place) {
                wanted.entry(place.0).or_default().push(place.1);
            }
        }
        for (file, offsets) in wanted {
            let open = self.files[file as usize].open.as_ref();
            let names = open.and_then(|open| functions(open, &offsets));
            let names = names.unwrap_or_else(|| vec![None; offsets.len()]);
            let places = offsets.into_iter().map(|offset| (file, offset));
            self.named.extend(places.zip(names));
        }
    }
}

/// Parse a line "7f00-7f01 r-xp 00001000 fe:00 456    /path" if it is an executable mapping of a
/// file: start, end, offset, inode, path.
fn parse(line: &str) -> Option<(u64, u64, u64, u64, &str)> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.as_bytes().get(2) == Some(&b'x');
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (_, ino) = (words.next()?, words.next()?.parse().ok()?);
    let path = words.next()?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let (start, end) = (
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    );
    (is_code && path.starts_with('/')).then_some((start, end, offset, ino, path))
}

/// Return true if the last instruction of these bytes is a call: e8 and a distance, or ff /2 with
/// its operands.
fn ends_with_call(bytes: &[u8; CALL_BYTES]) -> bool {
    let by_register = |length: usize| {
        let at = CALL_BYTES - length;
        bytes[at] == 0xff && bytes[at + 1] >> 3 & 7 == 2
    };
    bytes[CALL_BYTES - 5] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(by_register)
}

fn build_id(file: &File) -> Option<String> {
    let cache = ReadCache::new(file);
    let parsed = object::File::parse(&cache).ok()?;
    let id = parsed.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Return the function at each offset of a file, from its symbol tables.
fn functions(file: &File, offsets: &[u64]) -> Option<Vec<Option<String>>> {
    let cache = ReadCache::new(file);
    let parsed = object::File::parse(&cache).ok()?;
    let segments: Vec<_> = parsed.segments().collect();
    let address_of = |offset: u64| {
        segments.iter().find_map(|segment| {
            let (begin, size) = segment.file_range();
            (begin..begin + size)
                .contains(&offset)
                .then(|| offset - begin + segment.address())
        })
    };
    let mut symbols: Vec<(u64, u64, String)> = parsed
        .symbols()
        .chain(parsed.dynamic_symbols())
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.address() != 0)
        .filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            Some((symbol.address(), symbol.size(), name.to_owned()))
        })
        .collect();
    symbols.sort();
    let name = |offset: &u64| {
        let address = address_of(*offset)?;
        let after = symbols.partition_point(|symbol| symbol.0 <= address);
        let (start, size, name) = symbols.get(after.checked_sub(1)?)?;
        (*size == 0 || address < start + size).then(|| name.clone())
    };
    Some(offsets.iter().map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_distinguished_from_other_instructions() {
        assert!(ends_with_call(&[0, 0, 0xe8, 1, 2, 3, 4])); // call distance
        assert!(ends_with_call(&[0, 0, 0, 0, 0, 0xff, 0xd0])); // call *%rax
        assert!(ends_with_call(&[0, 0xff, 0x15, 1, 2, 3, 4])); // call *place(%rip)
        assert!(!ends_with_call(&[0x90; 7]));
        assert!(!ends_with_call(&[0, 0, 0, 0, 0, 0xff, 0xe0])); // jmp *%rax
    }

    #[test]
    fn only_code_of_files_is_kept() {
        let code = "7f00-7f20 r-xp 00001000 fe:00 456                        /usr/lib/a b.so";
        assert_eq!(
            parse(code),
            Some((0x7f00, 0x7f20, 0x1000, 456, "/usr/lib/a b.so"))
        );
        assert!(parse("7f00-7f20 rw-p 00001000 fe:00 456   /usr/lib/a.so").is_none());
        assert!(parse("7f00-7f20 r-xp 00000000 00:00 0     [vdso]").is_none());
    }

    #[test]
    fn own_code_is_named() {
        let here = own_code_is_named as fn() as usize as u64;
        let mut stacks = UserStacks::default();
        let number = stacks.number(std::process::id(), &[here + 1], &[0; NEAR_WORDS]);
        assert_eq!(number, Some(0));
        let json = stacks.take_json();
        let name = json["stacks"][0][0][2].as_str().unwrap_or_default();
        assert!(name.contains("own_code_is_named"), "{name}");
        assert_eq!(
            stacks.number(0, &[here], &[]),
            None,
            "there is no such process"
        );
        assert_eq!(stacks.take_json()["unknown"], 1);
    }
}
