//! Converts an FP8 checkpoint to BF16 and prints how many tensors were written: convert SOURCE DESTINATION.
use invar::{v1, Controls, Runtime};

fn main() -> Result<(), invar::Error> {
    let mut arguments = std::env::args().skip(1);
    let config = v1::ConvertConfig { source: arguments.next(), destination: arguments.next(), ..Default::default() };
    let report = Runtime::new()?.convert(&config, Controls::new())?;
    println!("tensors_written: {}", report.tensors_written.unwrap_or_default());
    Ok(())
}
