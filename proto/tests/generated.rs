//! The committed code is what the definition generates.

use std::path::{Path, PathBuf};

use prost::Message;

const UPDATE: &str = "UPDATE_PROTO";

#[test]
fn the_committed_code_is_what_the_definition_generates() {
    let fresh = tempfile::tempdir().expect("a temporary directory");
    generate(fresh.path());
    let committed = crate_dir().join("src/generated");
    for name in ["tidegate.peer.v1.rs", "descriptor.bin"] {
        let new = std::fs::read(fresh.path().join(name)).expect("generated");
        let path = committed.join(name);
        if std::env::var_os(UPDATE).is_some() {
            std::fs::create_dir_all(&committed).expect("the directory");
            std::fs::write(&path, &new).expect("written");
        }
        let old = std::fs::read(&path).unwrap_or_default();
        assert!(
            new == old,
            "{} is out of date: run this test with {UPDATE}=1 and commit the result",
            path.display()
        );
    }
}

#[test]
fn the_descriptor_names_the_service_for_reflection() {
    let set = prost_types::FileDescriptorSet::decode(tidegate_proto::FILE_DESCRIPTOR_SET)
        .expect("a descriptor set");
    let services: Vec<_> = set
        .file
        .iter()
        .flat_map(|file| file.service.iter().map(|s| (file.package(), s.name())))
        .collect();
    assert_eq!(services, [("tidegate.peer.v1", "Replication")]);
}

fn generate(out: &Path) {
    let root = crate_dir().join("proto");
    let mut set = protox::compile(["tidegate/peer/v1/peer.proto"], [&root]).expect("it compiles");
    let mut builder = tonic_prost_build::configure()
        .out_dir(out)
        .bytes(".tidegate.peer.v1.BatchPart.data")
        .bytes(".tidegate.peer.v1.SnapshotData.data");
    builder = builder.emit_rerun_if_changed(false);
    builder.compile_fds(set.clone()).expect("code");
    for file in &mut set.file {
        file.source_code_info = None;
    }
    std::fs::write(out.join("descriptor.bin"), set.encode_to_vec()).expect("written");
}

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
