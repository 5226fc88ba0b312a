//! Checkpoints read tensor by tensor, tokenizers, previews: right and wrong use.
mod support;

use invar::{v1, Bf16, CancelToken, Checkpoint, Code, Controls, DType, EncodeOptions, Runtime, Tokenizer, F16};
use serde_json::Value;
use std::path::Path;
use std::{env, fs, thread};
use support::{case, runtime, Folder};

const WEIGHT: &str = "model.layers.0.self_attn.k_proj.weight";

fn open(runtime: &Runtime) -> Checkpoint {
    let config = v1::OpenConfig { path: Some(case("autofp8-static-llama")), ..Default::default() };
    Checkpoint::open(runtime, &config).unwrap()
}

fn tokenizers() -> String {
    let cases = env::var_os("INVAR_CASES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/cases"), Into::into);
    cases.join("tokenizers/small-llama3").to_str().unwrap().to_owned()
}

#[test]
fn a_checkpoint_lists_finds_and_decodes() {
    let runtime = runtime();
    let checkpoint = open(&runtime);
    drop(runtime); // what was made from it keeps it
    let tensors: Vec<_> = checkpoint.iter().map(Result::unwrap).collect();
    assert_eq!(tensors.len() as i64, checkpoint.len());
    assert!(!checkpoint.is_empty());
    assert!(tensors.windows(2).all(|pair| pair[0].name < pair[1].name));
    let tensor = checkpoint.find(WEIGHT).unwrap();
    assert_eq!(tensor, tensors[tensor.index as usize]);
    assert_eq!((tensor.dtype, tensor.quantized, tensor.rule.as_str()), (DType::Fp8E4m3, true, "tensor_scale"));
    assert_eq!((tensor.shape.as_slice(), tensor.rows, tensor.elements), (&[32, 64][..], 32, 2048));
    assert!(tensor.file.ends_with(".safetensors") && !tensor.layout.is_empty());

    let wide: Vec<f32> = checkpoint.read(WEIGHT).unwrap();
    let narrow: Vec<Bf16> = checkpoint.read(WEIGHT).unwrap();
    let half: Vec<F16> = checkpoint.read(WEIGHT).unwrap();
    assert_eq!((wide.len(), half.len()), (2048, 2048));
    for (wide, narrow) in wide.iter().zip(&narrow) {
        assert!((wide - narrow.to_f32()).abs() <= wide.abs() / 256.0);
    }
    let mut rows = vec![0f32; 3 * 64];
    checkpoint.read_rows(&tensor, 5..8, &mut rows, None).unwrap();
    assert_eq!(rows, wide[5 * 64..8 * 64]);
    // Copies come as they are stored.
    let norm = tensors.iter().find(|tensor| tensor.rule == "copy").unwrap();
    assert!(!norm.quantized);
    let threads: Vec<Vec<f32>> = thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| checkpoint.read(WEIGHT).unwrap())).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(threads.iter().all(|values| *values == wide));
}

#[test]
fn a_checkpoint_refuses_wrong_use() {
    let runtime = runtime();
    let checkpoint = open(&runtime);
    let error = checkpoint.find("no.such.tensor").unwrap_err();
    assert_eq!((error.code(), error.reason()), (Code::NotFound, "checkpoint.no_tensor"));
    assert!(error.message().contains("no.such.tensor"), "{error}");
    assert_eq!(checkpoint.tensor(-1).unwrap_err().code(), Code::OutOfRange);
    assert_eq!(checkpoint.tensor(checkpoint.len()).unwrap_err().code(), Code::OutOfRange);
    let tensor = checkpoint.find(WEIGHT).unwrap();
    let mut memory = vec![0f32; 64];
    let reason =
        |rows, memory: &mut [f32]| checkpoint.read_rows(&tensor, rows, memory, None).unwrap_err().reason().to_owned();
    assert_eq!(reason(0..33, &mut memory), "checkpoint.row_range");
    assert_eq!(reason(i64::MIN..i64::MAX, &mut memory), "checkpoint.row_range");
    assert_eq!(reason(0..2, &mut memory), "checkpoint.read_size");
    let mut codes = vec![0i64; 2048];
    assert_eq!(checkpoint.read_rows(&tensor, 0..32, &mut codes, None).unwrap_err().code(), Code::InvalidArgument);
    let token = CancelToken::new(&runtime).unwrap();
    token.cancel();
    let error = checkpoint.read_rows(&tensor, 0..1, &mut memory, Some(&token)).unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    let missing = v1::OpenConfig { path: Some("/no/such/folder".into()), ..Default::default() };
    let error = Checkpoint::open(&runtime, &missing).unwrap_err();
    assert!(error.message().contains("/no/such/folder"), "{error}");
}

#[test]
fn a_tokenizer_gives_the_recorded_ids() {
    let runtime = runtime();
    let folder = tokenizers();
    let tokenizer = Tokenizer::load(&runtime, &folder).unwrap();
    let recorded: Value = serde_json::from_slice(&fs::read(Path::new(&folder).join("cases.json")).unwrap()).unwrap();
    let cases = recorded["cases"].as_array().unwrap();
    assert!(cases.len() >= 100);
    for one in cases {
        let ids = |key: &str| -> Vec<i32> { serde_json::from_value(one[key].clone()).unwrap() };
        let text = one["text"].as_str().unwrap();
        let special = EncodeOptions::new().parse_special(true);
        assert_eq!(tokenizer.encode(text, special.add_special(true)).unwrap(), ids("ids"), "{text:?}");
        assert_eq!(tokenizer.encode(text, special).unwrap(), ids("ids_no_special"), "{text:?}");
        assert_eq!(tokenizer.decode(&ids("ids"), true).unwrap(), one["decoded"].as_str().unwrap());
        assert_eq!(tokenizer.decode(&ids("ids"), false).unwrap(), one["decoded_keep_special"].as_str().unwrap());
    }
    assert_eq!(tokenizer.info().unwrap().vocab_size(), 700);
    let snowman = tokenizer.encode("\u{2603}", EncodeOptions::new()).unwrap();
    assert!(snowman.len() > 1);
    assert_eq!(tokenizer.decode(&snowman[..1], false).unwrap(), "\u{FFFD}");
    assert_eq!(tokenizer.decode_bytes(&snowman[..1], false).unwrap(), "\u{2603}".as_bytes()[..1]);
}

#[test]
fn a_tokenizer_refuses_wrong_use() {
    let runtime = runtime();
    let tokenizer = Tokenizer::load(&runtime, tokenizers()).unwrap();
    let error = tokenizer.decode(&[1, 2, 700], false).unwrap_err();
    assert_eq!(error.reason(), "tokenizer.id_out_of_range");
    assert!(error.message().contains("700"), "{error}");
    let chat = v1::ChatConfig { messages_json: Some("[]".into()), ..Default::default() };
    assert_eq!(tokenizer.chat(&chat).unwrap_err().reason(), "template.none");
    assert_eq!(Tokenizer::load(&runtime, "/no/such").unwrap_err().code(), Code::NotFound);
}

#[test]
fn vocabularies_are_learned_and_conversations_written() {
    let (runtime, folder) = (runtime(), Folder::new());
    let text = folder.text(300);
    let config = v1::TokenizerTrainConfig {
        paths: vec![text.clone()],
        vocab_size: Some(300),
        output: Some(folder.path("vocabulary")),
        ..Default::default()
    };
    runtime.train_tokenizer(&config, Controls::new()).unwrap();
    let tokenizer = Tokenizer::load(&runtime, folder.path("vocabulary")).unwrap();
    assert_eq!(tokenizer.info().unwrap().vocab_size(), 300);
    let line = "line 7 says that 7 and 1 is 8";
    let ids = tokenizer.encode(line, EncodeOptions::new()).unwrap();
    assert!(ids.len() < line.len() / 2);
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), line);

    let template = folder.path("chat.jinja");
    fs::write(&template, "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}").unwrap();
    let chat = v1::ChatConfig {
        messages_json: Some(r#"[{"role": "user", "content": "Hello"}]"#.into()),
        template_path: Some(template),
        ..Default::default()
    };
    assert_eq!(tokenizer.chat(&chat).unwrap(), "<user>Hello");

    let preview = v1::PreviewConfig {
        data: Some(v1::DataConfig { paths: vec![text], ..Default::default() }),
        samples: Some(1),
        ..Default::default()
    };
    let report = runtime.preview_data(&preview, Controls::new()).unwrap();
    assert_eq!((report.documents(), report.samples.len()), (1, 1));
}

#[test]
fn readers_go_to_any_thread() {
    fn any<T: Send + Sync>() {}
    any::<Checkpoint>();
    any::<Tokenizer>();
}
