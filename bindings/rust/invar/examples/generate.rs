//! Generates text from a model folder and prints it as it comes: generate MODEL PROMPT
use invar::{v1, Controls, Model, Runtime};

/// Calls `piece` with every piece of text; the whole text.
pub fn generate(
    runtime: &Runtime,
    model: &str,
    request: &v1::GenerateConfig,
    mut piece: impl FnMut(&str),
) -> invar::Result<String> {
    let load = v1::LoadConfig { path: Some(model.into()), ..Default::default() };
    let mut model = Model::load(runtime, &load, Controls::new())?;
    let mut tokens = model.tokens(request)?;
    for token in tokens.by_ref() {
        piece(&token?.text);
    }
    Ok(tokens.finish()?.text().to_owned())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(prompt)) = (arguments.next(), arguments.next()) else {
        return Err("usage: generate MODEL PROMPT".into());
    };
    let request = v1::GenerateConfig { prompt: Some(prompt), ..Default::default() };
    generate(&Runtime::new()?, &model, &request, |text| print!("{text}"))?;
    println!();
    Ok(())
}
