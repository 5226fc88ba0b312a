//! Decodes one tensor of an FP8 checkpoint into memory of this program, a few rows at a time: decode CHECKPOINT TENSOR
use invar::{v1, Bf16, Checkpoint, Runtime};

/// The tensor as BF16, `rows` rows by call.
pub fn decode(runtime: &Runtime, path: &str, name: &str, rows: i64) -> invar::Result<Vec<Bf16>> {
    let config = v1::OpenConfig { path: Some(path.into()), ..Default::default() };
    let checkpoint = Checkpoint::open(runtime, &config)?;
    let tensor = checkpoint.find(name)?;
    let mut values = vec![Bf16::default(); tensor.elements as usize];
    let row = (tensor.elements / tensor.rows.max(1)) as usize;
    let mut first = 0;
    while first < tensor.rows {
        let end = (first + rows).min(tensor.rows);
        checkpoint.read_rows(&tensor, first..end, &mut values[first as usize * row..end as usize * row], None)?;
        first = end;
    }
    Ok(values)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("usage: decode CHECKPOINT TENSOR".into());
    };
    let values = decode(&Runtime::new()?, &path, &name, 64)?;
    let largest = values.iter().map(|value| value.to_f32().abs()).fold(0.0, f32::max);
    println!("{} values, the largest {largest}", values.len());
    Ok(())
}
