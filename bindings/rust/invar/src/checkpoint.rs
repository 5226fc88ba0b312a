//! Work on stored checkpoints. A gate that fails (verify, diff, calibrate) is no error: the report says so.
use crate::controls::Controls;
use crate::error::Result;
use crate::raw::Bytes;
use crate::runtime::Runtime;
use crate::v1;
use invar_sys as sys;
use prost::Message;
use std::ffi::c_void;

type ConfigCall = unsafe extern "C" fn(
    *mut sys::invar_runtime,
    *const c_void,
    usize,
    *mut sys::invar_cancel,
    *const sys::invar_progress_callback,
    *mut *mut sys::invar_bytes,
) -> *mut sys::invar_status;

impl Runtime {
    pub(crate) fn work<R: Message + Default>(
        &self,
        function: ConfigCall,
        config: &impl Message,
        controls: Controls<'_>,
    ) -> Result<R> {
        let config = config.encode_to_vec();
        controls
            .run(|cancel, progress| {
                // SAFETY: one of the functions below, each of which takes exactly this.
                Bytes::from_call(|out| unsafe {
                    function(self.as_ptr(), config.as_ptr().cast(), config.len(), cancel, progress, out)
                })
            })?
            .decode()
    }

    /// What is stored, by reading headers only.
    pub fn inspect(&self, config: &v1::InspectConfig, controls: Controls<'_>) -> Result<v1::InspectReport> {
        self.work(sys::invar_checkpoint_inspect, config, controls)
    }

    /// Converts a checkpoint; the destination appears under its name only when complete.
    pub fn convert(&self, config: &v1::ConvertConfig, controls: Controls<'_>) -> Result<v1::ConvertReport> {
        self.work(sys::invar_checkpoint_convert, config, controls)
    }

    /// Proves a converted folder against its source again, with the scalar codecs.
    pub fn verify(&self, config: &v1::VerifyConfig, controls: Controls<'_>) -> Result<v1::VerifyReport> {
        self.work(sys::invar_checkpoint_verify, config, controls)
    }

    /// Compares two checkpoints, tensor by tensor.
    pub fn diff(&self, config: &v1::DiffConfig, controls: Controls<'_>) -> Result<v1::DiffReport> {
        self.work(sys::invar_checkpoint_diff, config, controls)
    }

    /// Loss, divergence and agreement of two checkpoints on the same tokens.
    pub fn calibrate(&self, config: &v1::CalibrateConfig, controls: Controls<'_>) -> Result<v1::CalibrateReport> {
        self.work(sys::invar_checkpoint_calibrate, config, controls)
    }

    /// Writes a training checkpoint as a serving folder.
    pub fn export(&self, config: &v1::ExportConfig, controls: Controls<'_>) -> Result<v1::ExportReport> {
        self.work(sys::invar_checkpoint_export, config, controls)
    }

    /// Folds a LoRA adapter into its base.
    pub fn merge(&self, config: &v1::MergeConfig, controls: Controls<'_>) -> Result<v1::MergeReport> {
        self.work(sys::invar_checkpoint_merge, config, controls)
    }

    /// Measures this machine.
    pub fn bench(&self, config: &v1::BenchConfig, controls: Controls<'_>) -> Result<v1::BenchReport> {
        self.work(sys::invar_bench_run, config, controls)
    }
}
