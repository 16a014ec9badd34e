//! A minimal client, so that the measurement shows the servers.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use crate::Result;

const BUFFER: usize = 256 * 1024;

/// Seconds to upload `bytes` and get the answer.
pub fn put(server: SocketAddr, bytes: u64) -> Result<f64> {
    let buffer: Vec<u8> = (0..BUFFER).map(|index| (index * 31 / 7) as u8).collect();
    let start = Instant::now();
    let mut stream = TcpStream::connect(server)?;
    write!(
        stream,
        "PUT /file HTTP/1.1\r\nHost: bench\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n"
    )?;
    let mut left = bytes as usize;
    while left > 0 {
        left -= stream.write(&buffer[..left.min(BUFFER)])?;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if !answer.starts_with("HTTP/1.1 20") {
        return Err(format!("upload refused: {answer}").into());
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds to download all of the `bytes`.
pub fn get(server: SocketAddr, bytes: u64) -> Result<f64> {
    let mut buffer = vec![0; BUFFER];
    let start = Instant::now();
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut received = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            read => received += read as u64,
        }
    }
    if received < bytes {
        return Err(format!("only {received} bytes came").into());
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Deletes the file.
pub fn delete(server: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(b"DELETE /file HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if !answer.starts_with("HTTP/1.1 20") {
        return Err(format!("deletion refused: {answer}").into());
    }
    Ok(())
}
