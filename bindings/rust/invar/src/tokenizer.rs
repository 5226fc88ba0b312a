//! Text to token ids and back, conversations as text, vocabularies learned from text.
use crate::controls::Controls;
use crate::error::{Code, Error, Result};
use crate::raw::{self, Bytes};
use crate::runtime::Runtime;
use crate::v1;
use invar_sys as sys;
use prost::Message;
use std::path::Path;
use std::ptr::NonNull;

/// A vocabulary, with its chat template where it has one. `Send` and `Sync`: any number of threads at once.
///
/// ```no_run
/// use invar::{v1::ChatConfig, EncodeOptions, Runtime, Tokenizer};
///
/// let runtime = Runtime::new()?;
/// let tokenizer = Tokenizer::load(&runtime, "SmolLM2-135M-Instruct")?;
/// let chat = ChatConfig {
///     messages_json: Some(r#"[{"role": "user", "content": "Hello"}]"#.into()),
///     add_generation_prompt: Some(true),
///     ..Default::default()
/// };
/// let ids = tokenizer.encode(&tokenizer.chat(&chat)?, EncodeOptions::new().parse_special(true))?;
/// println!("{} tokens", ids.len());
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Debug)]
pub struct Tokenizer(NonNull<sys::invar_tokenizer>);

// SAFETY: the C interface lets any thread use a tokenizer, several at once.
unsafe impl Send for Tokenizer {}
// SAFETY: as above.
unsafe impl Sync for Tokenizer {}

impl Drop for Tokenizer {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_tokenizer_release(self.0.as_ptr()) }
    }
}

/// What [`Tokenizer::encode`] does beside the text; by default nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodeOptions(u32);

impl EncodeOptions {
    /// The text alone, as it is.
    pub fn new() -> EncodeOptions {
        EncodeOptions::default()
    }

    /// Puts around the text what the tokenizer does, such as a begin token.
    pub fn add_special(self, on: bool) -> EncodeOptions {
        self.with(sys::INVAR_ENCODE_ADD_SPECIAL as u32, on)
    }

    /// Special tokens written in the text become their ids.
    pub fn parse_special(self, on: bool) -> EncodeOptions {
        self.with(sys::INVAR_ENCODE_PARSE_SPECIAL as u32, on)
    }

    /// Cuts the ids as the tokenizer's file says, if it does.
    pub fn truncate(self, on: bool) -> EncodeOptions {
        self.with(sys::INVAR_ENCODE_TRUNCATE as u32, on)
    }

    fn with(self, bit: u32, on: bool) -> EncodeOptions {
        EncodeOptions(if on { self.0 | bit } else { self.0 & !bit })
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, a SentencePiece model (`*.model`), or the folder that holds one of them.
    ///
    /// # Errors
    /// `"tokenizer.unsupported"` names what is not supported in the file.
    pub fn load(runtime: &Runtime, path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = raw::path_bytes(path.as_ref());
        // SAFETY: live runtime, pointer and size belong together.
        raw::handle(|out| unsafe { sys::invar_tokenizer_load(runtime.as_ptr(), raw::chars(path), path.len(), out) })
            .map(Tokenizer)
    }

    /// The vocabulary's size, special ids, and whether a chat template came with it.
    pub fn info(&self) -> Result<v1::TokenizerInfo> {
        // SAFETY: live handle.
        Bytes::from_call(|out| unsafe { sys::invar_tokenizer_info(self.as_ptr(), out) })?.decode()
    }

    /// The text's token ids.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<i32>> {
        // SAFETY: live handle, pointer and size belong together.
        let ids = Bytes::from_call(|out| unsafe {
            sys::invar_tokenizer_encode(self.as_ptr(), raw::chars(text.as_bytes()), text.len(), options.0, out)
        })?;
        let whole = |id: &[u8]| i32::from_ne_bytes(id.try_into().unwrap_or_default());
        Ok(ids.as_slice().chunks_exact(4).map(whole).collect())
    }

    /// The text that the ids stand for, U+FFFD for an unfinished character; special tokens are left out when
    /// `skip_special`.
    ///
    /// # Errors
    /// `"tokenizer.id_out_of_range"` names an id that the vocabulary does not have, and its place.
    pub fn decode(&self, ids: &[i32], skip_special: bool) -> Result<String> {
        let text = self.decoded(ids, skip_special, 0)?;
        String::from_utf8(text).map_err(|error| Error::new(Code::Internal, "text.bad_utf8", error.to_string()))
    }

    /// As [`decode`](Tokenizer::decode); an unfinished character stays as its bytes, which the next ids may complete.
    ///
    /// # Errors
    /// As [`decode`](Tokenizer::decode).
    pub fn decode_bytes(&self, ids: &[i32], skip_special: bool) -> Result<Vec<u8>> {
        self.decoded(ids, skip_special, sys::INVAR_DECODE_BYTES as u32)
    }

    fn decoded(&self, ids: &[i32], skip_special: bool, flags: u32) -> Result<Vec<u8>> {
        let flags = flags | if skip_special { sys::INVAR_DECODE_SKIP_SPECIAL as u32 } else { 0 };
        // SAFETY: live handle, pointer and count belong together.
        let text = Bytes::from_call(|out| unsafe {
            sys::invar_tokenizer_decode(self.as_ptr(), ids.as_ptr(), ids.len(), flags, out)
        })?;
        Ok(text.as_slice().to_vec())
    }

    /// A conversation as the tokenizer's chat template writes it; encode it with [`EncodeOptions::parse_special`].
    ///
    /// # Errors
    /// `"template.none"`: neither the tokenizer nor the config has a template; `"template.raised"` carries what the
    /// template itself refuses.
    pub fn chat(&self, config: &v1::ChatConfig) -> Result<String> {
        let config = config.encode_to_vec();
        // SAFETY: live handle, pointer and size belong together.
        let text = Bytes::from_call(|out| unsafe {
            sys::invar_tokenizer_chat(self.as_ptr(), config.as_ptr().cast(), config.len(), out)
        })?;
        Ok(text.text())
    }

    fn as_ptr(&self) -> *mut sys::invar_tokenizer {
        self.0.as_ptr()
    }
}

impl Runtime {
    /// Learns a byte-level vocabulary from text and writes it where the config says.
    pub fn train_tokenizer(
        &self,
        config: &v1::TokenizerTrainConfig,
        controls: Controls<'_>,
    ) -> Result<v1::TokenizerTrainReport> {
        self.work(sys::invar_tokenizer_train, config, controls)
    }

    /// Shows data files as training sees them, token by token: what is in a document, and where its loss counts.
    pub fn preview_data(&self, config: &v1::PreviewConfig, controls: Controls<'_>) -> Result<v1::PreviewReport> {
        self.work(sys::invar_data_preview, config, controls)
    }
}
