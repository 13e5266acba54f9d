//! Prints how fast the transforms on the path of every block are: `cargo run --release -p transform --example transform_speed`.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::Instant;
use transform::{checksum, compress};

/// Runs `body` over `bytes` for about a third of a second.
fn measure(name: &str, bytes: usize, mut body: impl FnMut()) {
    body();
    let start = Instant::now();
    let mut rounds = 0u32;
    while start.elapsed().as_millis() < 300 {
        body();
        rounds += 1;
    }
    let rate = f64::from(rounds) * bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
    println!("{name:<24} {rate:8.2} GB/s");
}

fn main() {
    let size = 128 << 10;
    // Words with some repetition: compresses to about a half.
    let mut state = 1u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    };
    let words: Vec<Vec<u8>> = (0..500)
        .map(|_| {
            (0..3 + next() % 9)
                .map(|_| b'a' + (next() % 26) as u8)
                .collect()
        })
        .collect();
    let mut text = Vec::new();
    while text.len() < size {
        text.extend_from_slice(&words[((next() * next()) >> 16) as usize % words.len()]);
        text.push(b' ');
    }
    text.truncate(size);
    let noise: Vec<u8> = (0..size).map(|_| next() as u8).collect();
    let zeros = vec![0u8; size];
    let salt = [7; 32];
    let names = [
        "",
        "",
        "",
        "",
        "",
        "",
        "fletcher2",
        "fletcher4",
        "sha256",
        "",
        "",
        "sha512",
        "skein",
        "edonr",
        "blake3",
    ];
    for (algorithm, name) in names
        .iter()
        .enumerate()
        .filter(|(_, name)| !name.is_empty())
    {
        measure(name, size, || {
            black_box(checksum::checksum(
                algorithm as u8,
                black_box(&text),
                false,
                &salt,
            ));
        });
    }
    measure("fletcher4 4K", 4096, || {
        black_box(checksum::fletcher4(black_box(&text[..4096]), false));
    });
    measure("fletcher4 byteswap", size, || {
        black_box(checksum::fletcher4(black_box(&text), true));
    });
    measure("is_zero", size, || {
        black_box(compress::is_zero(black_box(&zeros)));
    });
    let cases = [
        ("lzjb", compress::LZJB, 0),
        ("zle", compress::ZLE, 0),
        ("lz4", compress::LZ4, 0),
        ("gzip-6", compress::GZIP_6, 0),
        ("zstd-1", compress::ZSTD, 1),
        ("zstd-3", compress::ZSTD, 3),
        ("zstd-fast-10", compress::ZSTD, 112),
    ];
    for (name, algorithm, level) in cases {
        let mut room = vec![0; 2 * size];
        let length = compress::compress(algorithm, level, &text, &mut room).expect("fits");
        let physical = room[..length].to_vec();
        println!("{name}: ratio {:.2}", size as f64 / length as f64);
        measure(&format!("{name} compress"), size, || {
            black_box(compress::compress(
                algorithm,
                level,
                black_box(&text),
                &mut room,
            ));
        });
        measure(&format!("{name} compress noise"), size, || {
            black_box(compress::compress(
                algorithm,
                level,
                black_box(&noise),
                &mut room[..size / 8 * 7],
            ));
        });
        let mut block = vec![0; size];
        measure(&format!("{name} decompress"), size, || {
            black_box(compress::decompress_into(
                algorithm,
                black_box(&physical),
                &mut block,
            ))
            .expect("valid");
        });
    }
}
