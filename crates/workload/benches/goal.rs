//! GOAL files to memory: `cargo bench -p windtunnel-workload --bench goal`.
//!
//! Writes a text of about 200 MB (a ring all-reduce over and over, as schedgen lays it out) and its binary form into the
//! temporary folder, and reads them from the page cache. Rates are of the file that is read; the best of five.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use windtunnel_workload::{Operation, goal};

fn write_ring(path: &Path, ranks: u64, steps: u64) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "num_ranks {ranks}")?;
    for rank in 0..ranks {
        writeln!(file, "\nrank {rank} {{")?;
        let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for step in 0..steps {
            let (send, receive, calc) = (3 * step + 1, 3 * step + 2, 3 * step + 3);
            writeln!(file, "l{send}: send 131072b to {to} tag {}", step % 100)?;
            if step > 0 {
                writeln!(file, "l{send} requires l{}", send - 1)?;
            }
            writeln!(file, "l{receive}: recv 131072b from {from} tag {} cpu 1", step % 100)?;
            writeln!(file, "l{calc}: calc {}", 1_000 + step % 777)?;
            writeln!(file, "l{calc} requires l{receive}")?;
        }
        writeln!(file, "}}")?;
    }
    file.flush()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn best(times: u32, mut work: impl FnMut()) -> f64 {
    (0..times)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// Peak resident memory of this process in bytes, where the system tells.
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("windtunnel-goal-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for (name, ranks, steps) in [("many small ranks", 16_384, 124), ("few large ranks", 8, 250_000)] {
        let (text, binary) = (folder.join("ring.goal"), folder.join("ring.bin"));
        write_ring(&text, ranks, steps)?;
        let text_bytes = std::fs::metadata(&text)?.len();
        let text_seconds = best(5, || drop(goal::open(&text).expect("the ring is well-formed")));
        let rss = peak_rss();
        let workload = goal::open(&text)?;
        let write_seconds = best(1, || goal::write_binary(&workload, &binary).expect("it fits on the disk"));
        let binary_bytes = std::fs::metadata(&binary)?.len();
        let text_write_seconds = best(1, || goal::write_text(&workload, &text).expect("it fits on the disk"));
        let operations = workload.operations() as f64;
        let edges = goal::stats(&workload).requires;
        drop(workload);
        let binary_seconds = best(5, || drop(goal::open(&binary).expect("it was just written")));
        println!(
            "{name}: {ranks} ranks, {operations} operations of {} B, {edges} edges",
            size_of::<Operation>()
        );
        let row = |what: &str, bytes: u64, seconds: f64| {
            println!(
                "  {what:<12} {:7.1} MB in {seconds:.3} s: {:7.1} MB/s, {:5.1} M operations/s",
                bytes as f64 / 1e6,
                bytes as f64 / 1e6 / seconds,
                operations / 1e6 / seconds
            );
        };
        row("read text", text_bytes, text_seconds);
        row("read binary", binary_bytes, binary_seconds);
        row("write text", text_bytes, text_write_seconds);
        row("write binary", binary_bytes, write_seconds);
        let equivalent = text_bytes as f64 / binary_seconds / 1e6;
        println!(
            "  binary against text: {:.1}x in operations/s, {equivalent:.0} MB of text/s",
            text_seconds / binary_seconds
        );
        if let Some(rss) = rss {
            println!(
                "  peak resident memory after reading text: {:.0} B per operation",
                rss as f64 / operations
            );
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
