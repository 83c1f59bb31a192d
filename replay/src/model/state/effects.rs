//! Effects on the world of an operation that has its place in the order.

use spoolscope_traces::records::{NONE, PlanOp};

use crate::model::state::objects::Predicted;
use crate::model::state::required_names;
use crate::model::state::sizes::{Seen, changes_size};
use crate::model::state::world::World;
use crate::model::state::xattr_calls::left_by;
use crate::semantics::{self, Kind, Lock};
use crate::touches::{self, Makes, Touch};

/// Returns whether other operations may see a difference after this one.
pub fn changes_anything(op: &PlanOp) -> bool {
    let releases = matches!(semantics::lock(op), Some((Lock::Release, _)));
    let closes = semantics::may_close(semantics::kind(op));
    let permits = matches!(semantics::kind(op), Kind::Chmod | Kind::Chown);
    releases || closes || permits || changes_size(op) || changes_names(op) || left_by(op).is_some()
}

/// Returns whether names may come, go or move.
pub fn changes_names(op: &PlanOp) -> bool {
    let touches = touches::of(op);
    let mut touches = touches.iter().flatten();
    touches.any(|touch| touch.makes != Makes::Same)
}

/// Makes names come, go and move; learns what was there before.
pub fn change_names(world: &mut World, op: &PlanOp) {
    let touches = touches::of(op);
    if touches.iter().all(Option::is_none) {
        return;
    }
    let moved = world.moved_ino(op);
    let stopped = required_names::stopped(world, op).is_some();
    for touch in touches.iter().flatten() {
        if op.ret >= 0 {
            world.slots.reach(touch.path);
            for index in 0..world.names.above(touch).len() {
                let above = world.names.above(touch)[index];
                if world.slots.is_unknown(above) {
                    let object = world.plant(above, 0, None);
                    world.object_mut(object).learn_type(libc::S_IFDIR);
                }
            }
        }
        if !stopped {
            world.settle_initial(op, touch, moved);
        }
    }
    world.settle_full(op);
    for touch in touches.iter().flatten() {
        match touch.makes {
            Makes::Same => {}
            Makes::Gone if semantics::kind(op) == Kind::Rename => {}
            Makes::Gone => world.remove(touch.path),
            Makes::Object => world.create(op, touch.path),
            Makes::Moved => world.rename(op),
            Makes::Linked => world.link(op),
            // Done once, at the second name, if that is known.
            Makes::Swapped if touch.path == op.path2 => {
                world.exchange(op.path, op.path2);
            }
            Makes::Swapped | Makes::Whiteout => {}
        }
    }
    let is_whiteout = |touch: &&Touch| touch.makes == Makes::Whiteout;
    if let Some(touch) = touches.iter().flatten().find(is_whiteout) {
        world.white_out(op, touch.path);
    }
}

/// Changes descriptors, sizes, bytes and attributes.
pub fn change_objects(world: &mut World, at: u32, op: &PlanOp) {
    if semantics::makes_nameless(op) {
        world.create_nameless(op);
    }
    world.track_fd(at, op);
    match semantics::kind(op) {
        Kind::Fork if op.arg != i64::from(NONE) => {
            world.inherit_fds(op.thread, op.arg as u32);
        }
        Kind::Exit => world.processes.exit(op.thread),
        Kind::CopyRange | Kind::Sendfile | Kind::Splice => world.blur_output(op),
        Kind::Umask => world.processes.set_umask(op.thread, op.mode),
        Kind::Identity => world.processes.change_ids(op),
        _ => {}
    }
    world.note_xattr(op);
    if semantics::looks_for_holes(op) {
        world.learn_holes(op);
    }
    if op.ret < 0 {
        return;
    }
    let Some(object) = world.target_of(op) else {
        if semantics::kind(op) == Kind::Fallocate {
            world.space.grow(op.size.max(0)); // of an unknown file
        }
        return;
    };
    world.objects.learn_ino(object, op.ino);
    if semantics::kind(op) != Kind::Chmod {
        world.object_mut(object).learn_mode(u32::from(op.obj_mode));
    }
    let by_acl = semantics::mode_by_acl(op);
    if by_acl.is_some() || matches!(semantics::kind(op), Kind::Chmod | Kind::Chown) {
        world.object_mut(object).set_mode_at(op.end_ns);
    } else if world.is_whole && op.ino != 0 && op.ino == world.object(object).ino() {
        let known = world.object_mut(object);
        known.meet_mode(u32::from(op.obj_mode), op.start_ns);
    }
    if let Some(mode) = by_acl {
        let special = world.object(object).mode() & 0o7000;
        return world.object_mut(object).chmod(special | mode);
    }
    let special = semantics::is_special(world.object(object).mode());
    match semantics::kind(op) {
        Kind::Chmod => world.object_mut(object).chmod(op.mode),
        Kind::Chown => world.object_mut(object).chown(op.arg),
        // A special file has no contents: what is written to a device goes elsewhere.
        _ if special => {}
        Kind::Write if op.ret > 0 => world.write(op, object),
        Kind::Truncate | Kind::Ftruncate => world.resize(object, op.offset),
        Kind::Open if changes_size(op) => world.resize(object, 0),
        Kind::Fallocate if op.obj_size >= 0 => world.allocate(op, object),
        Kind::Clone => world.fill_from_another(op, object),
        Kind::Fault if semantics::dirties(op) => {
            observe(world, op, object);
            world.dirty(op, object);
        }
        _ => observe(world, op, object),
    }
}

/// Believes a size that no recorded operation explains, but takes its contents as unknown.
fn observe(world: &mut World, op: &PlanOp, object: u32) {
    let (known, seen) = (world.object_mut(object), Seen::by(op));
    known.show_size(op.obj_size);
    match seen {
        Some(Seen::AtLeast(least)) => known.show_least(least),
        Some(Seen::Exactly(size)) => known.show_size(size),
        _ => {}
    }
    if let (Some(Seen::Exactly(size)), Some(known)) = (seen, known.known_size())
        && size != known
    {
        world.object_mut(object).predict(Predicted::Size);
        world.fill_somewhere(object, (size - known).max(0));
        world.resize(object, size);
    }
}
