//! A run as a table of comma-separated values: a line for each round of each figure, for whatever reads such tables.

use anyhow::Result;

use crate::record::Record;
use crate::workload::Better;

/// All of it.
pub fn csv(record: &Record) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["workload", "target", "figure", "unit", "better", "round", "value"])?;
    for outcome in &record.workloads {
        for column in &outcome.columns {
            for sample in &column.samples {
                let better = match sample.better {
                    Better::Higher => "higher",
                    Better::Lower => "lower",
                };
                for (round, value) in sample.values.iter().enumerate() {
                    let (round, value) = ((round + 1).to_string(), value.to_string());
                    writer.write_record([
                        &outcome.workload,
                        &column.target,
                        sample.name.as_ref(),
                        sample.unit.as_ref(),
                        better,
                        &round,
                        &value,
                    ])?;
                }
            }
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use crate::report::changes::tests::record;

    #[test]
    fn a_line_for_each_round() {
        let text = super::csv(&record(&[("32 threads, latency", "us", [3.0, 2.5, 2.0])])).unwrap();
        let expected = "workload,target,figure,unit,better,round,value\n\
            sweep,tarn,\"32 threads, latency\",us,lower,1,3\nsweep,tarn,\"32 threads, latency\",us,lower,2,2.5\nsweep,tarn,\"32 threads, latency\",us,lower,3,2\n";
        assert_eq!(text, expected);
    }
}
