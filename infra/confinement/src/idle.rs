//! Work that may wait for everything else.

use std::io;

/// Lets the thread `id`, or the calling thread, run only while a processor has nothing else to do (`SCHED_IDLE`). A thread of the
/// lowest priority would keep its processor to the end of its slice, several milliseconds, before one that serves a request
/// gets it; this one gives it up at once. Threads that it starts later inherit this. A process without privileges cannot
/// take it back.
///
/// # Errors
/// There is no such thread, or it belongs to another user.
pub fn run_in_idle_time(id: Option<i32>) -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads `priority` while it runs, and keeps no pointer to it.
    let set = unsafe { libc::sched_setscheduler(id.unwrap_or(0), libc::SCHED_IDLE, &raw const priority) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The scheduling policy of thread `id`.
    fn policy(id: i32) -> i32 {
        // SAFETY: the call takes a number alone.
        unsafe { libc::sched_getscheduler(id) }
    }

    #[test]
    fn a_thread_and_those_it_starts_run_in_idle_time() {
        let inherited = thread::spawn(|| {
            run_in_idle_time(None).unwrap();
            (policy(0), thread::spawn(|| policy(0)).join().unwrap())
        });
        assert_eq!(inherited.join().unwrap(), (libc::SCHED_IDLE, libc::SCHED_IDLE));
        assert_eq!(policy(0), libc::SCHED_OTHER);
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        assert_eq!(run_in_idle_time(Some(i32::MAX)).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
