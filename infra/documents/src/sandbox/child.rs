//! The process that parses one document, which it reads from its standard input. It ends with it, so that nothing of a document
//! is left for the next one.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    process::abort,
};

use super::{FromChild, Hello, ToChild, frames, restrict};
use crate::{
    detect,
    failure::Failure,
    ocr::{Link, Recognised, Task},
    reader::{Abilities, Reader, Request},
};

/// Reads a document and ends.
///
/// # Errors
/// When the restrictions cannot be taken, or the pipe breaks.
pub fn run() -> io::Result<()> {
    signalbox_confinement::close_inherited()?;
    // A document that makes any thread panic has won against this process, but not against its parent.
    std::panic::set_hook(Box::new(|_| abort()));
    let mut from = io::stdin().lock();
    let mut to = io::stdout().lock();
    let Some(Hello { places, limits }) = frames::read(&mut from)? else { return Ok(()) };
    let mut reader = Reader::new(&places, limits);
    let protection = restrict::restrict(&places, limits)?;
    let abilities = Abilities { protection, ..reader.abilities() };
    frames::write(&mut to, &FromChild::Ready(abilities))?;
    let Some(message) = frames::read(&mut from)? else { return Ok(()) };
    let (name, mime_type, options, remote_languages, as_pdf, bytes) = match message {
        ToChild::Read { name, mime_type, options, remote_languages, as_pdf, bytes } => {
            (name, mime_type, options, remote_languages, as_pdf, bytes)
        }
        ToChild::Draw { name, page, width, bytes } => {
            if protection.seccomp && !protection.landlock {
                signalbox_confinement::forbid_opening()?;
            }
            let bytes = take(&mut from, bytes)?;
            restrict::allow_cpu(limits.cpu_seconds)?;
            return match reader.draw(bytes, &name, page, width) {
                Ok(Some(picture)) => {
                    frames::write(&mut to, &FromChild::Drawn { bytes: Some(picture.len() as u64) })?;
                    to.write_all(&picture)?;
                    to.flush()
                }
                Ok(None) => frames::write(&mut to, &FromChild::Drawn { bytes: None }),
                Err(failure) => frames::write(&mut to, &FromChild::Failed(failure)),
            };
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    if protection.seccomp && !protection.landlock {
        // Which files may be opened is not limited, so what this document may need is loaded, and nothing after that.
        reader.prepare(&options);
        signalbox_confinement::forbid_opening()?;
    }
    let bytes = take(&mut from, bytes)?;
    restrict::allow_cpu(limits.cpu_seconds)?;
    let request = Request {
        bytes,
        name: &name,
        mime_type: mime_type.as_deref().and_then(detect::known),
        options: &options,
        remote_languages: &remote_languages,
    };
    let (answer, pdf) = match read(&mut reader, request, as_pdf, &mut from, &mut to) {
        Ok(answer) => answer,
        Err(failure) => (FromChild::Failed(failure), Vec::new()),
    };
    frames::write(&mut to, &answer)?;
    to.write_all(&pdf)?;
    to.flush()
}

fn take(from: &mut impl Read, bytes: u64) -> io::Result<Vec<u8>> {
    let mut document = Vec::new();
    let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    document.try_reserve_exact(length).map_err(io::Error::other)?;
    from.take(bytes).read_to_end(&mut document)?;
    if document.len() == length { Ok(document) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The answer, and the bytes that follow it.
fn read(
    reader: &mut Reader,
    request: Request<'_>,
    as_pdf: bool,
    from: &mut dyn Read,
    to: &mut dyn Write,
) -> Result<(FromChild, Vec<u8>), Failure> {
    // Progress and pictures go over the same pipe, one after the other.
    let pipe = RefCell::new(to);
    let mut reported = 0;
    let mut progress = |done: usize, all: usize| {
        // Reported a hundred times at most: a book has many pages.
        let step = done * 100 / all.max(1);
        if all > 1 && step > reported {
            reported = step;
            // A parent that has gone closes the pipe, which ends this process later.
            let _ = frames::write(&mut **pipe.borrow_mut(), &FromChild::Progress { done, all });
        }
    };
    let mut link = Pipe { from, to: &pipe };
    if as_pdf {
        let mut made = reader.make_searchable(request, &mut link, &mut progress)?;
        let pdf = std::mem::take(&mut made.pdf);
        return Ok((FromChild::Searchable { made, bytes: pdf.len() as u64 }, pdf));
    }
    let parsed = reader.read(request, &mut link, &mut progress)?;
    Ok((FromChild::Done(Box::new(parsed)), Vec::new()))
}

/// The way to the parent while a document is read.
struct Pipe<'a, 'w> {
    from: &'a mut dyn Read,
    to: &'a RefCell<&'w mut dyn Write>,
}

impl Link for Pipe<'_, '_> {
    fn send(&mut self, task: Task) -> Result<(), Failure> {
        let Task { page, image } = task;
        let picture = FromChild::Picture { page, width: image.width, height: image.height, dpi: image.dpi };
        let mut to = self.to.borrow_mut();
        frames::write(&mut **to, &picture).map_err(broken)?;
        to.write_all(&image.pixels).and_then(|()| to.flush()).map_err(broken)
    }

    fn receive(&mut self) -> Result<Vec<Recognised>, Failure> {
        frames::write(&mut **self.to.borrow_mut(), &FromChild::Recognise).map_err(broken)?;
        match frames::read(self.from).map_err(broken)? {
            Some(ToChild::Words(answer)) => answer,
            _ => Err(broken(io::ErrorKind::InvalidData.into())),
        }
    }

    fn admit(&mut self) -> Result<(), Failure> {
        frames::write(&mut **self.to.borrow_mut(), &FromChild::Admit).map_err(broken)?;
        match frames::read(self.from).map_err(broken)? {
            Some(ToChild::Admitted(answer)) => answer,
            _ => Err(broken(io::ErrorKind::InvalidData.into())),
        }
    }
}

fn broken(_: io::Error) -> Failure {
    Failure::unavailable("the recognising service was not reached")
}
