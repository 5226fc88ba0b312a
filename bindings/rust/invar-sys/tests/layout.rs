//! The declarations describe the structs as the C compiler lays them out.
use std::mem::{align_of, size_of, MaybeUninit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::addr_of;
use std::{env, fs};

/// One line for each struct and field: name, size and offset or alignment.
macro_rules! layouts {
    ($($name:ident { $($field:ident),* $(,)? })*) => {{
        let mut lines = Vec::new();
        $(
            let name = stringify!($name);
            let memory = MaybeUninit::<invar_sys::$name>::uninit();
            let base = memory.as_ptr();
            lines.push((format!("{name} {} {}", size_of::<invar_sys::$name>(), align_of::<invar_sys::$name>()), name, ""));
            $({
                // SAFETY: only addresses inside the allocation are computed.
                let at = unsafe { addr_of!((*base).$field) };
                let offset = at as usize - base as usize;
                lines.push((format!("{name}.{} {} {offset}", stringify!($field), size_of_pointee(at)), name, stringify!($field)));
            })*
        )*
        lines
    }};
}

fn size_of_pointee<T>(_: *const T) -> usize {
    size_of::<T>()
}

#[test]
fn structs_have_the_c_compilers_layout() {
    let rust = layouts! {
        invar_runtime_options { struct_size, threads, log, log_user, log_drop, log_level, reserved, allocate, deallocate, allocator_user, allocator_drop, file_prefix, file_size, file_read_at, file_list, file_user, file_drop }
        invar_step_metrics { struct_size, recipe, step, loss, lr, grad_norm, tokens, total_tokens, seconds, tokens_per_second, total_skipped, skipped, ladder_event }
        invar_eval_metrics { struct_size, reserved, step, loss, perplexity, tokens, seconds }
        invar_progress { struct_size, kind, stage, detail, unit, done, total, seconds, step, eval }
        invar_progress_callback { struct_size, reserved, call, user, drop }
        invar_checkpoint_tensor { struct_size, dtype, rank, quantized, shape, elements, rows, name, rule, layout, file }
        invar_token { struct_size, id, index, text, text_size }
        invar_token_callback { struct_size, reserved, call, user, drop }
        invar_batch { struct_size, reserved, sequences, sequence_length, ids, targets, mask }
        invar_loss { struct_size, reserved, sum, tokens }
        invar_tensor_info { struct_size, dtype, rank, quantized, shape, elements, bytes, block_rows, block_cols, scale_rows, scale_cols, scale_inv }
        invar_quantize_options { struct_size, dtype, granularity, power_of_two, block_rows, block_cols }
        invar_optimizer_result { struct_size, skipped, step, grad_norm, clip_factor }
        invar_accumulator_info { struct_size, finite, tokens, norm }
    };
    let declared = include_str!("../src/bindings.rs").matches("pub struct_size:").count();
    let listed = rust.iter().filter(|(_, _, field)| *field == "struct_size").count();
    assert_eq!(listed, declared, "every struct of the interface is listed here");

    let mut program = String::from("#include <stdio.h>\n#include \"invar/invar.h\"\nint main(void) {\n");
    for (_, name, field) in &rust {
        program += &if field.is_empty() {
            format!("printf(\"{name} %zu %zu\\n\", sizeof({name}), _Alignof({name}));\n")
        } else {
            format!(
                "printf(\"{name}.{field} %zu %zu\\n\", sizeof((({name}*)0)->{field}), offsetof({name}, {field}));\n"
            )
        };
    }
    program += "}\n";
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    fs::write(&source, program).unwrap();
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(compiler)
        .args(["-std=c11", "-Werror", "-I"])
        .arg(include_folder())
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status()
        .unwrap();
    assert!(built.success());
    let output = Command::new(&binary).output().unwrap();
    let c: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    let rust: Vec<&str> = rust.iter().map(|(line, _, _)| line.as_str()).collect();
    assert_eq!(rust, c);
    println!("{} structs and fields agree", rust.len());
}

/// INVAR_INCLUDE_DIR, else the folder in this project.
fn include_folder() -> PathBuf {
    env::var_os("INVAR_INCLUDE_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../c_api/include"), PathBuf::from)
}
