//! The same messages over one stream of the kernel's TCP.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::job::{timed, Far, Job, Near};

pub(crate) fn send(job: &Job, address: &str) -> io::Result<Near> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let body = vec![1; job.bytes as usize];
    let (calls_s, cpu_s) = timed(job, |_| {
        stream.write_all(&body)?;
        stream.read_exact(&mut [0])
    })?;
    Ok(Near { calls_s, cpu_s, ..Near::default() })
}

pub(crate) fn receive(job: &Job, listener: &TcpListener) -> io::Result<Far> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut body = vec![1; job.bytes as usize];
    let (_, cpu_s) = timed(job, |_| {
        stream.read_exact(&mut body)?;
        stream.write_all(&[1])
    })?;
    Ok(Far { cpu_s })
}
