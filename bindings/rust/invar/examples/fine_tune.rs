//! Trains on a text file and exports the result for serving: fine_tune TEXT OUTPUT
use invar::{v1, Controls, Metrics, Runtime, Session};

/// Runs the config; the loss of every step. The exported folder is `export`.
pub fn fine_tune(runtime: &Runtime, config: &v1::TrainConfig, export: &str) -> invar::Result<Vec<f64>> {
    let mut session = Session::create(runtime, config, Controls::new())?;
    let mut losses = Vec::new();
    for item in session.metrics()? {
        if let Metrics::Step(step) = item? {
            losses.push(step.loss);
        }
    }
    let target = v1::ExportConfig { destination: Some(export.into()), ..Default::default() };
    session.export(&target, Controls::new())?;
    Ok(losses)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(text), Some(output)) = (arguments.next(), arguments.next()) else {
        return Err("usage: fine_tune TEXT OUTPUT".into());
    };
    let runtime = Runtime::new()?;
    let mut config: v1::TrainConfig = runtime.from_json(
        r#"{"steps": 100, "data": {"sequence_length": 64},
            "model": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 176}}"#,
    )?;
    config.output = Some(format!("{output}/run"));
    config.data.get_or_insert_with(Default::default).paths.push(text);
    let losses = fine_tune(&runtime, &config, &format!("{output}/model"))?;
    println!("loss {:?} to {:?}; the model is in {output}/model", losses.first(), losses.last());
    Ok(())
}
