//! A model loaded for evaluation and generation, and the tokens it generates.
use crate::cancel::CancelToken;
use crate::controls::{Controls, Guarded};
use crate::error::Result;
use crate::raw::{self, Bytes};
use crate::runtime::Runtime;
use crate::stream::{self, Stream};
use crate::v1;
use invar_sys as sys;
use prost::Message;
use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// One generated token, borrowed during the callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenRef<'a> {
    /// 0 for the first generated token.
    pub index: i64,
    /// The token's number.
    pub id: i32,
    /// The text that this token completes: whole characters, empty while one is incomplete.
    pub text: &'a str,
}

/// One generated token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Token {
    /// 0 for the first generated token.
    pub index: i64,
    /// The token's number.
    pub id: i32,
    /// The text that this token completes: whole characters, empty while one is incomplete.
    pub text: String,
}

/// A loaded model. `Send`, not `Sync`: one thread at a time, any thread in turn.
///
/// ```no_run
/// use invar::{v1, Controls, Model, Runtime};
///
/// let runtime = Runtime::new()?;
/// let load = v1::LoadConfig { path: Some("run/export/bf16".into()), ..Default::default() };
/// let mut model = Model::load(&runtime, &load, Controls::new())?;
/// let request = v1::GenerateConfig { prompt: Some("In the beginning".into()), ..Default::default() };
/// for token in model.tokens(&request)? {
///     print!("{}", token?.text);
/// }
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Debug)]
pub struct Model {
    handle: Arc<Handle>,
    runtime: Runtime,
    not_sync: PhantomData<Cell<()>>,
}

#[derive(Debug)]
struct Handle(NonNull<sys::invar_model>);

// SAFETY: any thread may use the handle; simultaneous use is refused by the library ("handle.busy").
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_model_release(self.0.as_ptr()) }
    }
}

impl Model {
    /// Loads a folder with config.json and safetensors weights.
    ///
    /// # Errors
    /// `"family.unknown_model_type"` lists the supported families.
    pub fn load(runtime: &Runtime, config: &v1::LoadConfig, controls: Controls<'_>) -> Result<Model> {
        let config = config.encode_to_vec();
        let handle = controls.run(|cancel, progress| {
            // SAFETY: live runtime, pointer and size belong together.
            raw::handle(|out| unsafe {
                sys::invar_model_load(runtime.as_ptr(), config.as_ptr().cast(), config.len(), cancel, progress, out)
            })
            .map(Handle)
        })?;
        Ok(Model { handle: Arc::new(handle), runtime: runtime.clone(), not_sync: PhantomData })
    }

    /// Family, shape and tokenizer.
    pub fn info(&mut self) -> Result<v1::ModelInfo> {
        // SAFETY: live handle.
        Bytes::from_call(|out| unsafe { sys::invar_model_info(self.as_ptr(), out) })?.decode()
    }

    /// Token loss and perplexity of text; the config's model is not read.
    pub fn evaluate(&mut self, config: &v1::EvalConfig, controls: Controls<'_>) -> Result<v1::EvalReport> {
        let config = config.encode_to_vec();
        controls
            .run(|cancel, progress| {
                // SAFETY: live handle, pointer and size belong together.
                Bytes::from_call(|out| unsafe {
                    let data = config.as_ptr().cast();
                    sys::invar_model_evaluate(self.as_ptr(), data, config.len(), cancel, progress, out)
                })
            })?
            .decode()
    }

    /// Generates text; the config's model is not read.
    pub fn generate(&mut self, config: &v1::GenerateConfig) -> Result<v1::GenerateReport> {
        generate(Source::Model(self.as_ptr()), config, None, None)
    }

    /// Generates text and calls `token` for each token, on this thread. `ControlFlow::Break` ends the generation: the
    /// report says so, it is no error.
    pub fn generate_with(
        &mut self,
        config: &v1::GenerateConfig,
        cancel: Option<&CancelToken>,
        mut token: impl FnMut(&TokenRef<'_>) -> ControlFlow<()>,
    ) -> Result<v1::GenerateReport> {
        generate(Source::Model(self.as_ptr()), config, cancel, Some(&mut token))
    }

    /// Generates text on a thread of its own; the iterator yields the tokens as they come and ends the generation when
    /// it is dropped.
    pub fn tokens(&mut self, config: &v1::GenerateConfig) -> Result<Stream<'_, Token, v1::GenerateReport>> {
        let (handle, config) = (self.handle.clone(), config.clone());
        stream::start(&self.runtime, move |cancel, sender| {
            generate(
                Source::Model(handle.0.as_ptr()),
                &config,
                Some(cancel),
                Some(&mut |token| sender.send(token.owned())),
            )
        })
    }

    fn as_ptr(&self) -> *mut sys::invar_model {
        self.handle.0.as_ptr()
    }
}

/// Who generates.
pub(crate) enum Source {
    Model(*mut sys::invar_model),
    Session(*mut sys::invar_session),
}

type TokenFn<'a> = &'a mut dyn FnMut(&TokenRef<'_>) -> ControlFlow<()>;

pub(crate) fn generate(
    source: Source,
    config: &v1::GenerateConfig,
    cancel: Option<&CancelToken>,
    token: Option<TokenFn<'_>>,
) -> Result<v1::GenerateReport> {
    let config = config.encode_to_vec();
    let (data, size) = (config.as_ptr().cast::<c_void>(), config.len());
    let cancel = cancel.map_or(ptr::null_mut(), CancelToken::as_ptr);
    let call = |callback: *const sys::invar_token_callback| {
        // SAFETY: live handles of the caller, pointer and size belong together.
        Bytes::from_call(|out| unsafe {
            match source {
                Source::Model(model) => sys::invar_model_generate(model, data, size, cancel, callback, out),
                Source::Session(session) => sys::invar_session_generate(session, data, size, cancel, callback, out),
            }
        })
    };
    let bytes = match token {
        None => call(ptr::null()),
        Some(function) => {
            let mut guarded = Guarded { function, panic: None };
            let mut callback = raw::sized::<sys::invar_token_callback>();
            callback.call = Some(on_token);
            callback.user = (&mut guarded as *mut Guarded<TokenFn<'_>>).cast();
            let result = call(&callback);
            guarded.finish(result)
        }
    }?;
    bytes.decode()
}

unsafe extern "C" fn on_token(user: *mut c_void, token: *const sys::invar_token) -> i32 {
    // SAFETY: user is the Guarded of generate(), which outlives the call; the library calls on that thread only; the
    // text has text_size bytes during the call.
    unsafe {
        let guarded = &mut *user.cast::<Guarded<TokenFn<'_>>>();
        let token = raw::read_sized(token);
        let text = raw::string(token.text, token.text_size);
        let token = TokenRef { index: token.index, id: token.id, text: &text };
        guarded.call(|function| match function(&token) {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(()) => ControlFlow::Break(1),
        })
    }
}

impl TokenRef<'_> {
    pub(crate) fn owned(&self) -> Token {
        Token { index: self.index, id: self.id, text: self.text.to_owned() }
    }
}
