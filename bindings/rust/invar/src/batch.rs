//! One micro-batch of a host-driven training loop.
use crate::error::{Code, Error, Result};
use crate::raw;
use invar_sys as sys;
use std::ptr;

/// Token ids of one micro-batch, row-major `[sequences, sequence_length]`, borrowed for one call.
///
/// ```
/// use invar::Batch;
///
/// let ids = [1, 2, 3, 4, 5, 6, 7, 8];
/// let mask = [1, 1, 1, 0, 1, 1, 1, 0];
/// let batch = Batch::new(&ids, 4).mask(&mask);
/// # let _ = batch;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    ids: &'a [i32],
    sequence_length: usize,
    targets: Option<&'a [i32]>,
    mask: Option<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// `ids` holds whole sequences of `sequence_length`; each predicts the next id of its row.
    pub fn new(ids: &'a [i32], sequence_length: usize) -> Batch<'a> {
        Batch { ids, sequence_length, targets: None, mask: None }
    }

    /// What each position predicts instead; negative: no loss there.
    pub fn targets(mut self, targets: &'a [i32]) -> Batch<'a> {
        self.targets = Some(targets);
        self
    }

    /// 1 where a position's loss counts, 0 where not.
    pub fn mask(mut self, mask: &'a [u8]) -> Batch<'a> {
        self.mask = Some(mask);
        self
    }

    /// The C view, once the lengths fit together: the library cannot see them.
    pub(crate) fn raw(&self) -> Result<sys::invar_batch> {
        let wrong = |what: &str, size: usize, expected: String| {
            Err(Error::new(Code::InvalidArgument, "batch.shape", format!("batch: {what} {size}, expected {expected}")))
        };
        if self.sequence_length == 0 || self.ids.len() % self.sequence_length != 0 {
            return wrong("ids have length", self.ids.len(), format!("a multiple of {}", self.sequence_length));
        }
        for (what, size) in
            [("targets have length", self.targets.map(<[i32]>::len)), ("mask has length", self.mask.map(<[u8]>::len))]
        {
            if let Some(size) = size.filter(|size| *size != self.ids.len()) {
                return wrong(what, size, self.ids.len().to_string());
            }
        }
        let mut batch = raw::sized::<sys::invar_batch>();
        batch.sequences = (self.ids.len() / self.sequence_length) as i64;
        batch.sequence_length = self.sequence_length as i64;
        batch.ids = self.ids.as_ptr();
        batch.targets = self.targets.map_or(ptr::null(), <[i32]>::as_ptr);
        batch.mask = self.mask.map_or(ptr::null(), <[u8]>::as_ptr);
        Ok(batch)
    }
}

/// Loss of one micro-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Loss {
    /// Of token losses, nats.
    pub sum: f64,
    /// Tokens that carried loss.
    pub tokens: i64,
}

impl Loss {
    pub(crate) fn from_raw(raw: &sys::invar_loss) -> Loss {
        Loss { sum: raw.sum, tokens: raw.tokens }
    }

    /// Mean token loss; NaN without tokens.
    pub fn mean(&self) -> f64 {
        self.sum / self.tokens as f64
    }
}
