use std::sync::{Arc, Mutex, PoisonError};

const BUFFER_BYTES: usize = 256 * 1024;

/// Buffers of one download. A sent buffer is reused once its last reader drops it, so the same few stay in the
/// processor's cache and none is zeroed twice.
#[derive(Default)]
pub(crate) struct Buffers {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Buffers {
    pub(crate) fn take(&self) -> Buffer {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = free.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        Buffer { length: bytes.len(), bytes, home: Arc::clone(&self.free) }
    }
}

/// A buffer that is on its way, and how much of it counts.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
    home: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Buffer {
    /// Lets the first `length` bytes count, at most all of them.
    pub(crate) fn set_len(&mut self, length: usize) {
        self.length = length.min(self.bytes.len());
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.home.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}
