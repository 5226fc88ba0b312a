//! A training loop of this program: its own token ids, its own learning rate.
use invar::{v1, Batch, Controls, Runtime, Session};

/// What one run feeds.
pub struct Loop {
    /// Rows of a micro-batch.
    pub sequences: usize,
    /// Tokens of a row.
    pub sequence_length: usize,
    /// Micro-batches of a step.
    pub micro_batches: i64,
    /// Steps of the run.
    pub steps: usize,
    /// Learning rate of every step.
    pub lr: f64,
}

/// Token `i` of every micro-batch is `97 + i % 7`; the mean loss of every step.
pub fn run(runtime: &Runtime, config: &v1::TrainConfig, given: &Loop) -> invar::Result<Vec<f64>> {
    let mut session = Session::create(runtime, config, Controls::new())?;
    let ids: Vec<i32> = (0..given.sequences * given.sequence_length).map(|i| 97 + (i % 7) as i32).collect();
    let mut losses = Vec::new();
    for _ in 0..given.steps {
        session.begin(given.micro_batches)?;
        for _ in 0..given.micro_batches {
            session.forward_backward(&Batch::new(&ids, given.sequence_length))?;
        }
        losses.push(session.step_with_lr(given.lr)?.loss);
    }
    Ok(losses)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::new()?;
    let config = runtime.from_json(
        r#"{"micro_batch": 2, "data": {"sequence_length": 16, "tokenizer": {"kind": "byte"}},
            "model": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}}"#,
    )?;
    let given = Loop { sequences: 2, sequence_length: 16, micro_batches: 2, steps: 10, lr: 0.02 };
    println!("{:?}", run(&runtime, &config, &given)?);
    Ok(())
}
