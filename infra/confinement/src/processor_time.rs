//! How long a thread or a process has been on a processor.

use std::{io, time::Duration};

/// The time that a thread or a process has been on a processor. A confined process reads it too: that opens no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorClock {
    id: libc::clockid_t,
}

impl ProcessorClock {
    /// That of the calling thread; every thread of its process may read it.
    ///
    /// # Errors
    /// The system has no such clock.
    pub fn of_this_thread() -> io::Result<Self> {
        let mut id = 0;
        // SAFETY: the first call takes nothing, the second writes to `id` while it runs.
        let error = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut id) };
        found(error, id)
    }

    /// That of process `id`, all its threads together.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of_process(id: i32) -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: the call writes to `clock` while it runs.
        let error = unsafe { libc::clock_getcpuclockid(id, &raw mut clock) };
        found(error, clock)
    }

    /// Its time now.
    ///
    /// # Errors
    /// The thread or the process has ended.
    pub fn read(self) -> io::Result<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes to `time` while it runs.
        if unsafe { libc::clock_gettime(self.id, &raw mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let seconds = u64::try_from(time.tv_sec).map_err(io::Error::other)?;
        let nanoseconds = u32::try_from(time.tv_nsec).map_err(io::Error::other)?;
        Ok(Duration::new(seconds, nanoseconds))
    }
}

/// The time that `clock` counts from now on. Without a clock, and once its thread or process has ended, it is endless, so that a limit
/// of it always holds.
pub fn worked_from_now(clock: Option<ProcessorClock>) -> impl Fn() -> Duration + Send + 'static {
    let read = move || clock.and_then(|clock| clock.read().ok());
    let before = read();
    move || match (before, read()) {
        (Some(before), Some(now)) => now.saturating_sub(before),
        _ => Duration::MAX,
    }
}

fn found(error: libc::c_int, id: libc::clockid_t) -> io::Result<ProcessorClock> {
    if error == 0 { Ok(ProcessorClock { id }) } else { Err(io::Error::from_raw_os_error(error)) }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread};

    use super::*;

    #[test]
    fn a_thread_that_waits_uses_no_time_and_one_that_works_does() {
        let (published, clock) = channel();
        let (end, ended) = channel::<()>();
        let waiting = thread::spawn(move || {
            published.send(ProcessorClock::of_this_thread().unwrap()).unwrap();
            let _ = ended.recv();
        });
        let (clock, own) = (clock.recv().unwrap(), ProcessorClock::of_this_thread().unwrap());
        let (waited, begun) = (worked_from_now(Some(clock)), own.read().unwrap());
        let worked = Duration::from_millis(20);
        while own.read().unwrap() - begun < worked {}
        assert!(waited() < worked);
        let process = ProcessorClock::of_process(std::process::id().cast_signed()).unwrap();
        assert!(process.read().unwrap() >= worked);
        drop(end);
        waiting.join().unwrap();
        assert_eq!(worked_from_now(None)(), Duration::MAX);
    }

    #[test]
    fn a_process_that_is_not_there_has_no_time() {
        // Linux gives out smaller numbers.
        assert_eq!(ProcessorClock::of_process(1 << 22).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
