//! Converts an FP8 checkpoint to BF16 and prints its report: convert SOURCE DESTINATION
use invar::{v1, Controls, Runtime};
use std::ops::ControlFlow;

/// Converts, with a line of progress on standard error.
pub fn convert(runtime: &Runtime, source: &str, destination: &str) -> invar::Result<v1::ConvertReport> {
    let config = v1::ConvertConfig {
        source: Some(source.into()),
        destination: Some(destination.into()),
        verify: Some(true),
        ..Default::default()
    };
    let controls = Controls::new().progress(|event| {
        eprint!("\r{} of {} {}", event.done, event.total, event.unit);
        ControlFlow::Continue(())
    });
    let report = runtime.convert(&config, controls);
    eprintln!();
    report
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(source), Some(destination)) = (arguments.next(), arguments.next()) else {
        return Err("usage: convert SOURCE DESTINATION".into());
    };
    let runtime = Runtime::new()?;
    println!("{}", runtime.to_json_pretty(&convert(&runtime, &source, &destination)?)?);
    Ok(())
}
