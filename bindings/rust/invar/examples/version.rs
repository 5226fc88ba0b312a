//! Prints which library is loaded, or why it cannot be used.
use invar::Runtime;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let info = Runtime::new().map_err(|error| error.to_string())?.info()?;
    println!("invar {}, abi {}: {}", info.version(), info.abi(), info.cpu_features.join(" "));
    Ok(())
}
