//! Where user callbacks run: on the workers, threads of which one leads and the others run callbacks or rest.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tweed_proto::engine::driving::{Task, Wake, Workers};

use super::driver::Driver;
use crate::operation::op::Callback;
use crate::sync::{Condvar, LockRank, Mutex};

/// The workers of a node, and their threads.
pub(crate) struct Callbacks {
    workers: Mutex<Workers<Callback>>,
    woken: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for Callbacks {
    fn default() -> Callbacks {
        Callbacks {
            workers: Mutex::new(LockRank::Workers, Workers::default()),
            woken: Condvar::default(),
            threads: Mutex::new(LockRank::WorkerThreads, Vec::new()),
        }
    }
}

impl Callbacks {
    /// Starts the first worker.
    pub(crate) fn start(driver: &Arc<Driver>) -> std::io::Result<()> {
        let of_thread = Arc::clone(driver);
        let spawned =
            std::thread::Builder::new().name("tweed-drive".into()).spawn(move || work(&of_thread))?;
        driver.callbacks.threads.lock().push(spawned);
        Ok(())
    }

    /// Ends the workers once what is queued has run, and waits for them so long at most.
    pub(crate) fn stop(&self, most: Duration) {
        self.workers.lock().stop();
        self.woken.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        let here = std::thread::current().id();
        wait_for(threads.into_iter().filter(|thread| thread.thread().id() != here).collect(), most);
    }

    fn next(&self) -> Task<Callback> {
        let mut workers = self.workers.lock();
        loop {
            match workers.next_task() {
                Task::Rest => workers = self.woken.wait(workers),
                task => return task,
            }
        }
    }
}

impl Driver {
    /// Has callbacks run that another thread than the leader has found.
    pub(crate) fn hand_over(self: &Arc<Self>, callbacks: Vec<Callback>) {
        for callback in callbacks {
            let wake = self.callbacks.workers.lock().add(callback);
            self.wake_worker(wake);
        }
    }

    fn wake_worker(self: &Arc<Self>, wake: Wake) {
        match wake {
            Wake::Nobody => {}
            Wake::Resting => self.callbacks.woken.notify_one(),
            // Without a thread the next worker that is free takes what is queued.
            Wake::New => drop(Callbacks::start(self)),
        }
    }
}

/// What a worker does all its life.
fn work(driver: &Arc<Driver>) {
    loop {
        match driver.callbacks.next() {
            Task::Lead => lead(driver),
            Task::Run(callback) => callback(),
            Task::Rest => {}
            Task::Stop => return,
        }
    }
}

/// Drives the engine whenever there is something to do, until callbacks are to be run.
fn lead(driver: &Arc<Driver>) {
    while !driver.is_stopping() {
        let found = driver.lead_once();
        let (callback, wake) = driver.callbacks.workers.lock().step_down(found);
        driver.wake_worker(wake);
        if let Some(callback) = callback {
            return callback();
        }
    }
    // Callbacks of the last operations.
    driver.callbacks.workers.lock().stop();
}

/// Waits for the end of threads. Those that take longer go on alone.
pub(crate) fn wait_for(threads: Vec<JoinHandle<()>>, most: Duration) {
    let until = Instant::now() + most;
    for thread in threads {
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
