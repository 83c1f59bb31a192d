//! The reason why the kernel refuses a program, in one line.

use std::fs;
use std::sync::Mutex;

use libbpf_rs::PrintLevel;
use spoolscope_traces::filesystems;

static LOG: Mutex<String> = Mutex::new(String::new());

fn keep_warning(_: PrintLevel, text: String) {
    if let Ok(mut log) = LOG.lock() {
        log.push_str(&text);
    }
}

/// Keep libbpf's own messages for `last_log` instead of printing them on stderr.
pub fn quiet() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_warning)));
}

/// Return libbpf's messages since the last call, and clear them.
pub fn last_log() -> String {
    LOG.lock()
        .map(|mut log| std::mem::take(&mut *log))
        .unwrap_or_default()
}

/// Return the program whose loading failed, from libbpf's "prog 'on_exit': failed to load:
/// -EACCES".
pub fn culprit(log: &str) -> Option<String> {
    let line = log.lines().rfind(|l| l.contains("': failed to load: "))?;
    let (_, rest) = line.split_once("prog '")?;
    rest.split_once('\'').map(|(name, _)| name.to_owned())
}

/// Return the line of libbpf's log that gives the reason why a load failed.
pub fn reason(log: &str, error: &dyn std::fmt::Display) -> String {
    let line = log
        .lines()
        .filter(|l| !l.contains("failed to load") && !l.contains("PROG LOAD LOG"))
        .rfind(|l| !l.starts_with("processed "))
        .map(|l| l.trim_start_matches("libbpf: "));
    let line = line.map(|l| l.split_once("': ").map_or(l, |(_, said)| said).to_owned());
    line.unwrap_or_else(|| error.to_string())
}

/// Return the filesystem that has this tracepoint or function, if it is not in the kernel now.
pub fn unloaded(hook: &str) -> Option<&'static str> {
    let mut owners = filesystems::all().iter().filter(|f| f.own_driver);
    let owner = owners.find(|f| f.symbols.iter().any(|begin| hook.starts_with(begin)))?;
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_known = known.split_whitespace().any(|word| word == owner.fstype);
    (!is_known).then_some(owner.fstype.as_str())
}

/// Return the reason why the tracepoint or function that a program attaches to was not found.
pub fn absent(kind: &str, hook: &str) -> String {
    match unloaded(hook) {
        Some(owner) => format!("{owner} is not loaded: mount one, or modprobe {owner}"),
        None if kind == "tp_btf" => format!("this kernel has no tracepoint {hook}"),
        None => format!("this kernel has no function {hook} to trace"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "libbpf: prog 'on_exit': BPF program load failed: -EACCES\n\
        libbpf: prog 'on_exit': -- BEGIN PROG LOAD LOG --\n\
        0: R1=ctx() R10=fp0\n\
        R3 pointer arithmetic on trusted_ptr_or_null_ prohibited, null-check it first\n\
        processed 12 insns (limit 1000000)\n\
        -- END PROG LOAD LOG --\n\
        libbpf: prog 'on_exit': failed to load: -EACCES\n\
        libbpf: failed to load object 'recorder_bpf'\n";

    #[test]
    fn the_verifier_s_last_word_is_the_reason() {
        let want = "R3 pointer arithmetic on trusted_ptr_or_null_ prohibited, null-check it first";
        assert_eq!(reason(LOG, &"error"), want);
        assert_eq!(culprit(LOG).as_deref(), Some("on_exit"));
    }

    #[test]
    fn a_refusal_without_a_verifier_s_log() {
        let log = "libbpf: prog 'on_lookup': BPF program load failed: -EPERM\n\
                   libbpf: prog 'on_lookup': failed to load: -EPERM\n";
        assert_eq!(reason(log, &"error"), "BPF program load failed: -EPERM");
        assert_eq!(reason("", &"error"), "error");
        assert_eq!(culprit("libbpf: failed to create map 'ring'\n"), None);
    }

    #[test]
    fn a_kernel_without_the_tracepoint() {
        let said = absent("tp_btf", "block_io_never");
        assert_eq!(said, "this kernel has no tracepoint block_io_never");
        let said = absent("tp_btf", "zfs_never");
        assert_eq!(said, "zfs is not loaded: mount one, or modprobe zfs");
    }
}
