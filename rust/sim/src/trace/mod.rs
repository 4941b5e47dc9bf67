//! Traces: JSON Lines, one request a line, plain or compressed with gzip or zstd.

mod line;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use line::Rekey;

/// One request of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// Milliseconds from the start of the trace.
    pub timestamp_ms: f64,
    /// Prompt tokens.
    pub input_length: u64,
    /// Generated tokens.
    pub output_length: u64,
    /// Block ids in prompt order. Same id = same block and same whole prefix up to it.
    pub blocks: Vec<u64>,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read, or is damaged.
    #[error("{}: line {line}: {source}", path.display())]
    Io {
        /// The trace.
        path: PathBuf,
        /// Lines read before, plus one.
        line: u64,
        /// What went wrong.
        source: io::Error,
    },
    /// A line is not a request.
    #[error("{}: line {line}: {problem}", path.display())]
    Line {
        /// The trace.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// The field and what is wrong with it.
        problem: String,
    },
}

/// A trace file, read request by request.
///
/// Both published forms of the block ids are understood: `hash_ids` (a list) and `runs`
/// (`[[first, count], ...]`). RAGPulse's object of lists names components, not prefixes: its ids
/// are replaced by ids of chains, numbered as they appear.
pub struct Trace {
    path: PathBuf,
    lines: Box<dyn BufRead + Send + Sync>,
    line: u64,
    text: Vec<u8>,
    rekey: Rekey,
    left: u64,
}

/// Longest line that is read: what a request with a million block ids takes, twice over.
const MAX_LINE: u64 = 64 << 20;

impl Trace {
    /// Opens a trace and reads at most its first `head` requests. The compression is told from the
    /// first bytes.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn open(path: impl AsRef<Path>, head: Option<u64>) -> Result<Trace, TraceError> {
        let path = path.as_ref().to_owned();
        match decoder(&path) {
            Ok(lines) => Ok(Trace {
                path,
                lines,
                line: 0,
                text: Vec::new(),
                rekey: Rekey::default(),
                left: head.unwrap_or(u64::MAX),
            }),
            Err(source) => Err(TraceError::Io { path, line: 1, source }),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the line read last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next line that is not blank; false at the end.
    fn read_line(&mut self) -> io::Result<bool> {
        loop {
            self.text.clear();
            let read = self.lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.text)?;
            if read as u64 == MAX_LINE && !self.text.ends_with(b"\n") {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("longer than {MAX_LINE} bytes"),
                ));
            }
            if read == 0 {
                return Ok(false);
            }
            self.line += 1;
            if !self.text.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        let more = self.read_line().map_err(|source| TraceError::Io {
            path: self.path.clone(),
            line: self.line + 1,
            source,
        })?;
        if !more {
            return Ok(None);
        }
        line::parse(&self.text, &mut self.rekey).map(Some).map_err(|problem| TraceError::Line {
            path: self.path.clone(),
            line: self.line,
            problem,
        })
    }
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    /// The next request; nothing more after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let request = self.next_request().transpose();
        if !matches!(request, Some(Ok(_))) {
            self.left = 0;
        }
        request
    }
}

fn decoder(path: &Path) -> io::Result<Box<dyn BufRead + Send + Sync>> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    let start = file.fill_buf()?;
    Ok(if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(file)))
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(file)?))
    } else {
        Box::new(file)
    })
}
