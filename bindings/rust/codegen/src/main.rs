//! invar-codegen DESCRIPTORS OUT: the Rust messages of package invar.v1 from a descriptor set with source information.
use prost::Message;
use prost_types::FileDescriptorSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

const PACKAGE: &str = "invar.v1";

fn main() {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [descriptors, out] = arguments.as_slice() else {
        eprintln!("usage: invar-codegen DESCRIPTORS OUT");
        process::exit(2);
    };
    if let Err(error) = generate(descriptors, out) {
        eprintln!("{error}");
        process::exit(1);
    }
}

fn generate(descriptors: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let mut set = FileDescriptorSet::decode(fs::read(descriptors)?.as_slice())?;
    // Field options concern the library's own table; without their file nothing of google.protobuf is needed.
    set.file.retain(|file| file.package() == PACKAGE && !file.name().ends_with("options.proto"));
    for file in &mut set.file {
        file.dependency.retain(|name| !name.ends_with("options.proto") && !name.starts_with("google/"));
        file.public_dependency.clear();
        for location in file.source_code_info.iter_mut().flat_map(|info| &mut info.location) {
            for text in [&mut location.leading_comments, &mut location.trailing_comments] {
                *text = text.as_deref().map(escape);
            }
        }
    }
    let mut config = prost_build::Config::new();
    config.enable_type_names().btree_map(["."]).include_file("mod.rs");
    let requests = set
        .file
        .into_iter()
        .map(|file| (prost_build::Module::from_protobuf_package_name(file.package()), file))
        .collect();
    let modules = config.generate(requests)?;
    let text: String = modules.into_values().collect();
    fs::write(out, format!("// Generated from proto/invar/v1 by bindings/rust/generate; do not edit.\n{text}"))?;
    Ok(())
}

/// Words in angle and square brackets stay text in rustdoc.
fn escape(comment: &str) -> String {
    comment.replace('<', "\\<").replace('[', "\\[")
}
