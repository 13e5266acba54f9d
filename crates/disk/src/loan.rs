//! Memory that another thread may use while its owner waits.
//!
//! # Theory
//! A thread that waits for an I/O in a queue lends its memory to the one that makes the I/O together with others: nothing is copied, and nobody need own
//! what is read or written. [`lend`] and [`lend_mut`] run the owner's waiting; when that ends, however it does, the loan ends: it is
//! taken back when nobody uses it, and a later caller gets nothing.

#![allow(unsafe_code)] // each block says why

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Some bytes somewhere.
struct Raw {
    start: *mut u8,
    length: usize,
}

/// SAFETY: it is a place of plain bytes, which any thread may use whose turn it is; whose turn it is `Loan` and its lock say.
unsafe impl Send for Raw {}

/// What was lent; empty when it was taken back.
struct Shared {
    places: Mutex<Option<Vec<Raw>>>,
    /// The bytes may be changed.
    is_mutable: bool,
}

/// The right to ask for what was lent.
#[derive(Clone)]
pub struct Loan(Arc<Shared>);

/// What was lent, while somebody uses it: so long its owner waits.
pub struct Borrowed<'a> {
    places: MutexGuard<'a, Option<Vec<Raw>>>,
    is_mutable: bool,
}

/// Takes back what was lent, also when the owner panics.
struct TakeBack<'a>(&'a Shared, PhantomData<&'a mut [u8]>);

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        *self.0.places.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn with_loan<R>(places: Vec<Raw>, is_mutable: bool, work: impl FnOnce(&Loan) -> R) -> R {
    let loan = Loan(Arc::new(Shared { places: Mutex::new(Some(places)), is_mutable }));
    // The guard is a local of this function: no caller can keep it from being dropped before the borrow of the bytes ends.
    let _take_back = TakeBack(&loan.0, PhantomData);
    work(&loan)
}

/// Lends memory to be filled while `work` runs.
pub fn lend_mut<R>(buf: &mut [u8], work: impl FnOnce(&Loan) -> R) -> R {
    let place = Raw { start: buf.as_mut_ptr(), length: buf.len() };
    with_loan(vec![place], true, work)
}

/// Lends bytes to be read while `work` runs.
pub fn lend<R>(bufs: &[&[u8]], work: impl FnOnce(&Loan) -> R) -> R {
    let places = bufs.iter().map(|buf| Raw { start: buf.as_ptr().cast_mut(), length: buf.len() });
    with_loan(places.collect(), false, work)
}

impl Loan {
    /// What was lent, if it was not taken back.
    pub fn borrow(&self) -> Option<Borrowed<'_>> {
        let places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.is_some().then_some(Borrowed { places, is_mutable: self.0.is_mutable })
    }
}

impl Borrowed<'_> {
    /// The bytes, one piece after the other.
    pub fn bufs(&self) -> Vec<&[u8]> {
        // SAFETY: each place is a slice that its owner has borrowed for as long as the loan is not taken back, which needs the lock
        // that `self` holds. While it is lent only the one who holds the lock uses it; `self` is borrowed here, so nothing is changed meanwhile.
        let slice = |raw: &Raw| unsafe { std::slice::from_raw_parts(raw.start, raw.length) };
        self.places.iter().flatten().map(slice).collect()
    }

    /// The same, to be filled; none of what was lent to be read only.
    pub fn bufs_mut(&mut self) -> Vec<&mut [u8]> {
        if !self.is_mutable {
            return Vec::new();
        }
        // SAFETY: as above; the owner lent it as `&mut`, one place, so that no two of these overlap, and `self` is borrowed alone here.
        let slice = |raw: &Raw| unsafe { std::slice::from_raw_parts_mut(raw.start, raw.length) };
        self.places.iter().flatten().map(slice).collect()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // these tests are about threads
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn another_thread_fills_what_is_lent_and_gets_nothing_afterwards() {
        let mut buf = [0; 100];
        let kept = lend_mut(&mut buf, |loan| {
            let loan = loan.clone();
            thread::spawn(move || {
                loan.borrow().unwrap().bufs_mut()[0].fill(7);
                loan
            })
            .join()
            .unwrap()
        });
        assert_eq!(buf, [7; 100]);
        assert!(kept.borrow().is_none());
        lend(&[&buf, &[1, 2]], |loan| {
            let mut borrowed = loan.borrow().unwrap();
            assert_eq!(borrowed.bufs().concat()[99..], [7, 1, 2]);
            assert!(borrowed.bufs_mut().is_empty(), "it was lent to be read");
        });
    }

    /// Also where the owner does not wait but panics.
    #[test]
    fn what_is_used_is_not_taken_back() {
        let (tell, told) = channel();
        let (done, is_done) = channel();
        let user = thread::spawn(move || {
            let loan: Loan = told.recv().unwrap();
            let mut borrowed = loan.borrow().unwrap();
            done.send(()).unwrap();
            thread::sleep(Duration::from_millis(50));
            borrowed.bufs_mut()[0].fill(9);
        });
        let mut buf = vec![0; 10];
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lend_mut(&mut buf, |loan| {
                tell.send(loan.clone()).unwrap();
                is_done.recv().unwrap();
                panic!("as it must");
            });
        }));
        assert!(ended.is_err());
        assert_eq!(buf, [9; 10]);
        user.join().unwrap();
    }
}
