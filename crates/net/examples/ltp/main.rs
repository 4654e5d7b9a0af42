//! Measures LTP, or one stream of the kernel's TCP, from one host to another. Each message waits for the last one.
//!
//! ```text
//! ltp receive 10.0.0.2:7000
//! ltp send 10.0.0.2:7000 '{"transport": "ltp", "cipher": "aes", "bytes": 67108864, "repeats": 20, "lossy": false}'
//! ```
//!
//! The receiver takes one job. The sender prints one line of JSON. The invitations, and with them the keys, travel in
//! the clear: for measuring only. TCP takes the congestion control of the system or the route.

mod job;
mod over_ltp;
mod over_tcp;

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use job::{Far, Job, Near};
use serde::de::DeserializeOwned;
use serde::Serialize;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address] => receive(address),
        ["send", address, job] => send(address, serde_json::from_str(job)?),
        _ => Err("ltp receive ADDRESS:PORT | ltp send ADDRESS:PORT JOB".into()),
    }
}

fn receive(address: &str) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    println!("listening");
    io::stdout().flush()?;
    let mut control = Control::over(listener.accept()?.0)?;
    let job: Job = control.receive()?;
    let far = match job.transport.as_str() {
        "ltp" => over_ltp::receive(&job, &mut control)?,
        "tcp" => over_tcp::receive(&job, &listener)?,
        other => return Err(format!("there is no transport {other:?}").into()),
    };
    control.send(&far)
}

fn send(address: &str, job: Job) -> Result<(), Failure> {
    let mut control = Control::over(TcpStream::connect(address)?)?;
    control.send(&job)?;
    let near: Near = match job.transport.as_str() {
        "ltp" => over_ltp::send(&job, &mut control)?,
        "tcp" => over_tcp::send(&job, address)?,
        other => return Err(format!("there is no transport {other:?}").into()),
    };
    let far: Far = control.receive()?;
    println!("{}", job::report(&job, &near, &far));
    Ok(())
}

/// The two roles exchange lines of JSON.
pub(crate) struct Control {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Control {
    fn over(stream: TcpStream) -> io::Result<Control> {
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Control { stream, reader })
    }

    pub(crate) fn send(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(what)? + "\n";
        Ok(self.stream.write_all(line.as_bytes())?)
    }

    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}
