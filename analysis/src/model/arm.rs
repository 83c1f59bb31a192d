//! One disk: a queue of commands, a write cache, and an arm that takes the soonest command.

use super::geometry::{Geometry, Head};
use super::spec::Rotating;
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// A command that has waited so long is next at any distance.
const LONGEST_WAIT_NS: f64 = 500e6;
/// Idle time after which the cache is written out.
const IDLE: Duration = Duration::from_millis(20);

/// A command for the arm.
#[derive(Clone, Copy, Debug)]
struct Job {
    id: u64,
    offset: u64,
    bytes: u64,
    write: bool,
    /// Time at which the controller has read the command.
    ready: f64,
}

/// The end of the last read, from which the disk reads on: `from` passed the head at `at`.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    from: u64,
    at: f64,
}

#[derive(Debug)]
struct State {
    waiting: Vec<Job>,
    /// Answered writes that are not on the platters yet.
    cached: Vec<Job>,
    cached_bytes: u64,
    moving: Option<Job>,
    finished: HashSet<u64>,
    next: u64,
    flushes: usize,
    head: Head,
    ahead: Option<Ahead>,
}

/// A disk with its own thread, which is the arm.
#[derive(Debug)]
pub struct Arm {
    geometry: Geometry,
    bus: f64,
    command: f64,
    ahead_bytes: u64,
    cache_bytes: u64,
    depth: usize,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

/// A submitted command, for `wait`.
#[derive(Debug)]
#[must_use]
pub struct Ticket(u64);

impl Arm {
    /// Begin a disk of `bytes`; `turn` is where its platters are, 0 to 1.
    pub fn start(spec: &Rotating, bytes: u64, turn: f64) -> std::io::Result<Arc<Self>> {
        let arm = Arc::new(Self {
            geometry: Geometry::new(spec, bytes),
            bus: spec.bus_mb_s / 1e3,
            command: spec.command_us * 1e3,
            ahead_bytes: spec.read_ahead_kib << 10,
            cache_bytes: spec.write_cache_kib << 10,
            depth: spec.queue_depth,
            began: Instant::now(),
            state: Mutex::new(State {
                waiting: Vec::new(),
                cached: Vec::new(),
                cached_bytes: 0,
                moving: None,
                finished: HashSet::new(),
                next: 0,
                flushes: 0,
                head: Head {
                    offset: 0,
                    turn,
                    at: 0.0,
                },
                ahead: None,
            }),
            changed: Condvar::new(),
        });
        let moves = Arc::clone(&arm);
        thread::Builder::new()
            .name("arm".to_owned())
            .spawn(move || moves.move_for_ever())?;
        Ok(arm)
    }

    /// Submit a command for the platters.
    pub fn submit(&self, write: bool, offset: u64, bytes: u64) -> Ticket {
        let now = self.now();
        let mut state = self.lock();
        let id = state.number();
        if write && self.cache_bytes > 0 {
            self.cache_write(state, id, offset, bytes);
            self.pause(self.command + bytes as f64 / self.bus);
            return Ticket(id);
        }
        let covers = |job: &Job| job.offset <= offset && offset + bytes <= job.offset + job.bytes;
        if !write && state.cached.iter().chain(&state.moving).any(covers) {
            state.finished.insert(id);
            drop(state);
            self.pause(self.command + bytes as f64 / self.bus);
            return Ticket(id);
        }
        state.waiting.push(Job {
            id,
            offset,
            bytes,
            write,
            ready: now + self.command,
        });
        self.changed.notify_all();
        Ticket(id)
    }

    /// Wait until a command is done.
    pub fn wait(&self, ticket: &Ticket) {
        let mut state = self.lock();
        while !state.finished.remove(&ticket.0) {
            state = self.changed.wait(state).expect("no thread panics with it");
        }
    }

    /// Wait until everything that was cached before is on the platters.
    pub fn flush(&self) {
        let mut state = self.lock();
        let id = state.number();
        state.flushes += 1;
        self.changed.notify_all();
        let cached = |job: &Job| self.cache_bytes > 0 && job.write && job.id < id;
        while state.cached.iter().chain(&state.moving).any(cached) {
            state = self.changed.wait(state).expect("no thread panics with it");
        }
        state.flushes -= 1;
        drop(state);
        self.pause(self.command);
    }

    fn cache_write(&self, mut state: MutexGuard<State>, id: u64, offset: u64, bytes: u64) {
        let bytes_kept = bytes.min(self.cache_bytes);
        while state.cached_bytes + bytes_kept > self.cache_bytes {
            state = self.changed.wait(state).expect("no thread panics with it");
        }
        // A cached block that is written again goes to the platters once.
        if !state
            .cached
            .iter()
            .any(|job| (job.offset, job.bytes) == (offset, bytes))
        {
            let ready = self.now();
            state.cached_bytes += bytes_kept;
            state.cached.push(Job {
                id,
                offset,
                bytes,
                write: true,
                ready,
            });
        }
        state.finished.insert(id);
        self.changed.notify_all();
    }

    fn move_for_ever(&self) {
        let mut state = self.lock();
        loop {
            let Some(job) = self.choose(&mut state) else {
                let idle = state.waiting.is_empty() && !state.cached.is_empty();
                state = if idle {
                    let (mut state, time) = self
                        .changed
                        .wait_timeout(state, IDLE)
                        .expect("no thread panics with it");
                    if time.timed_out() && state.waiting.is_empty() {
                        let next = self.soonest(&state, &state.cached);
                        state.moving = next.map(|(i, _)| state.cached.remove(i));
                        self.carry_out(state)
                    } else {
                        state
                    }
                } else {
                    self.changed.wait(state).expect("no thread panics with it")
                };
                continue;
            };
            state.moving = Some(job);
            state = self.carry_out(state);
        }
    }

    /// Take the next command out of the queue, or out of the cache if that must be emptied.
    fn choose(&self, state: &mut State) -> Option<Job> {
        let now = self.now();
        let old = |job: &Job| now - job.ready > LONGEST_WAIT_NS;
        if state.waiting.first().is_some_and(old) {
            return Some(state.waiting.remove(0));
        }
        let urgent = state.flushes > 0 || state.cached_bytes * 2 > self.cache_bytes;
        let host = self.soonest(state, &state.waiting);
        let own = self.soonest(state, if urgent { &state.cached } else { &[] });
        match (host, own) {
            (Some((index, end)), own) if own.is_none_or(|(_, other)| end <= other) => {
                Some(state.waiting.remove(index))
            }
            (_, own) => own.map(|(index, _)| state.cached.remove(index)),
        }
    }

    /// Return the index of the command, of the oldest few, that ends first, and its end.
    fn soonest(&self, state: &State, jobs: &[Job]) -> Option<(usize, f64)> {
        let among = jobs.iter().take(self.depth);
        let ends = among.map(|job| self.service(state, job).0).enumerate();
        ends.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// Return the end of a command if it is next, and the read-ahead from then on.
    fn service(&self, state: &State, job: &Job) -> (f64, Option<Ahead>) {
        // A waiting command begins at the end of the one before, even if this thread is late.
        let now = job.ready.max(state.head.at);
        if let Some((end, ahead)) = self.read_ahead(state, job, now) {
            return (end, Some(ahead));
        }
        let over = now + self.geometry.reach(&state.head, now, job.offset);
        let end = over + job.bytes as f64 / self.geometry.rate(job.offset);
        let from = job.offset + job.bytes;
        (end, (!job.write).then_some(Ahead { from, at: end }))
    }

    /// Sleep for the time of the next command, and mark it as done.
    fn carry_out<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(job) = state.moving else {
            return state;
        };
        let (end, ahead) = self.service(&state, &job);
        drop(state);
        self.pause(end - self.now());
        state = self.lock();
        state.head = self.geometry.after(job.offset, job.bytes, end);
        state.ahead = ahead;
        state.moving = None;
        if job.write && self.cache_bytes > 0 {
            state.cached_bytes -= job.bytes.min(self.cache_bytes).min(state.cached_bytes);
        } else {
            state.finished.insert(job.id);
        }
        self.changed.notify_all();
        state
    }

    /// Return the end of a read that continues the last one, and the read-ahead after it.
    fn read_ahead(&self, state: &State, job: &Job, now: f64) -> Option<(f64, Ahead)> {
        let ahead = state.ahead.filter(|_| !job.write)?;
        let end = job.offset + job.bytes;
        if job.offset < ahead.from || job.offset > ahead.from + self.ahead_bytes {
            return None;
        }
        let rate = self.geometry.rate(job.offset);
        let passed = ahead.at + (end - ahead.from) as f64 / rate;
        // When the buffer was full, the disk waited.
        let at = passed.max(now - self.ahead_bytes as f64 / rate);
        let done = passed.max(now + job.bytes as f64 / self.bus);
        Some((done, Ahead { from: end, at }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_nanos() as f64
    }

    fn pause(&self, nanoseconds: f64) {
        if nanoseconds > 0.0 {
            thread::sleep(Duration::from_nanos(nanoseconds as u64));
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
