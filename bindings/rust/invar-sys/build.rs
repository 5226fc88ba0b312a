//! Finds libinvar: the folder named by INVAR_LIB_DIR, else pkg-config's `invar`. Nothing is downloaded or built.
use std::env;
use std::path::Path;

const VERSION: &str = "0.1.0";
const SONAME: &str = "libinvar.so.0";

fn main() {
    println!("cargo:rerun-if-env-changed=INVAR_LIB_DIR");
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    let mut tried = Vec::new();
    if let Some(folder) = env::var_os("INVAR_LIB_DIR") {
        let file = Path::new(&folder).join(SONAME);
        if file.is_file() {
            println!("cargo:rerun-if-changed={}", file.display());
            println!("cargo:rustc-link-search=native={}", Path::new(&folder).display());
            println!("cargo:rustc-link-lib=dylib:+verbatim={SONAME}");
            // Dependents read this as DEP_INVAR_LIB_DIR, for instance to set a run path.
            println!("cargo:lib_dir={}", Path::new(&folder).display());
            return;
        }
        tried.push(format!("INVAR_LIB_DIR: {} is no file", file.display()));
    } else {
        tried.push("INVAR_LIB_DIR is not set".to_owned());
        match pkg_config::Config::new().range_version(VERSION.."0.2.0").probe("invar") {
            Ok(found) => {
                if let Some(folder) = found.link_paths.first() {
                    println!("cargo:lib_dir={}", folder.display());
                }
                return;
            }
            Err(error) => tried.push(format!("pkg-config: {error}")),
        }
    }
    eprintln!("libinvar {VERSION} was not found:");
    for line in &tried {
        eprintln!("  {line}");
    }
    eprintln!("set INVAR_LIB_DIR to the folder of {SONAME}, or PKG_CONFIG_PATH to that of invar.pc");
    std::process::exit(1);
}
