//! Compiles the BPF object and generates its Rust skeleton.
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let source = "src/bpf/recorder.bpf.c";
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
        .join("recorder.skel.rs");
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let target = match arch.as_str() {
        "x86_64" => "-D__TARGET_ARCH_x86",
        "aarch64" => "-D__TARGET_ARCH_arm64",
        other => panic!("no BPF register layout for {other}: add it to src/bpf/kernel.h"),
    };
    SkeletonBuilder::new()
        .source(source)
        .clang_args([target, "-I../traces/include", "-Wall", "-Werror"])
        .build_and_generate(&out)
        .expect("failed to compile src/bpf/recorder.bpf.c: is clang installed?");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=../traces/include");
}
