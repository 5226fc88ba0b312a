//! Iterators over work that calls back: the work runs on a thread of its own, one item ahead of its reader.
use crate::cancel::CancelToken;
use crate::error::{Code, Error, Result};
use crate::runtime::Runtime;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::{Builder, JoinHandle};

/// Items of running work: generated tokens, metrics of a training run. Borrows what works; an error is the last item.
/// Dropping it cancels the work and waits for its end.
pub struct Stream<'a, T, R> {
    items: Option<Receiver<T>>,
    worker: Option<JoinHandle<Result<R>>>,
    report: Option<R>,
    cancel: CancelToken,
    owner: PhantomData<&'a mut ()>,
}

impl<T, R> fmt::Debug for Stream<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("running", &self.worker.is_some()).finish_non_exhaustive()
    }
}

/// Where the worker puts its items.
pub(crate) struct Sender<T>(SyncSender<T>);

impl<T> Sender<T> {
    /// Break when nobody reads any more.
    pub(crate) fn send(&self, item: T) -> ControlFlow<()> {
        match self.0.send(item) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Starts `work` on a thread of its own.
pub(crate) fn start<'a, T, R>(
    runtime: &Runtime,
    work: impl FnOnce(&CancelToken, &Sender<T>) -> Result<R> + Send + 'static,
) -> Result<Stream<'a, T, R>>
where
    T: Send + 'static,
    R: Send + 'static,
{
    let cancel = CancelToken::new(runtime)?;
    let (sender, items) = sync_channel(1);
    let token = cancel.clone();
    let worker = Builder::new()
        .name("invar-stream".to_owned())
        .spawn(move || work(&token, &Sender(sender)))
        .map_err(|error| Error::new(Code::ResourceExhausted, "stream.thread", format!("no thread: {error}")))?;
    Ok(Stream { items: Some(items), worker: Some(worker), report: None, cancel, owner: PhantomData })
}

impl<T, R> Stream<'_, T, R> {
    /// Ends the work at its next boundary, from any thread.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// The report of the whole work; items that were not read are skipped.
    pub fn finish(mut self) -> Result<R> {
        for item in self.by_ref() {
            item?;
        }
        self.report.take().ok_or_else(|| {
            Error::new(Code::FailedPrecondition, "stream.finished", "the stream has ended with an error before")
        })
    }

    fn join(&mut self) -> Option<Result<R>> {
        self.items = None;
        let worker = self.worker.take()?;
        Some(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<T, R> Iterator for Stream<'_, T, R> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if let Some(item) = self.items.as_ref().and_then(|items| items.recv().ok()) {
            return Some(Ok(item));
        }
        match self.join()? {
            Ok(report) => {
                self.report = Some(report);
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<T, R> Drop for Stream<'_, T, R> {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.items = None;
        if let Some(worker) = self.worker.take() {
            // Its result has no reader, and a panic in a destructor would end the process.
            let _ = worker.join();
        }
    }
}
