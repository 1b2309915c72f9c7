// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume without flash: every request goes to the origin.
//!
//! Changes claim their pages: a flash device may be attached while one is in flight, and a population must not validate
//! pages that it read before that change (design rule 4). Changes wait for the fence, since a restart could still use the
//! metadata of flash that failed. Reads are claimed too: a write that begins after the attach must know of them
//! ([`in_flight`](super::in_flight)).

use std::rc::Rc;

use crate::buf::Buf;
use crate::context::Context;
use crate::exec::IoKind;
use crate::mutant;
use crate::origin::Use;
use crate::request::Request;
use crate::runs::Tag;
use crate::shape::Place;

pub(crate) async fn read(cx: Rc<Context>, tag: Tag, request: Request) {
    let place = cx.shape.place(&request);
    if !request.passive {
        cx.population.requested(place.unit, place.len);
    }
    let unclaimed = mutant::is_active("old-after-attach");
    let _reading = (!unclaimed).then(|| cx.in_flight.read_begins(place.unit, &place.pages));
    read_origin(&cx, tag, &place, request.buf).await;
}

/// Answers a read from the origin, and admits nothing.
pub(crate) async fn read_origin(cx: &Context, tag: Tag, place: &Place, buf: Option<Buf>) {
    let buf = buf.unwrap_or_else(|| Buf::with_len(place.len as usize));
    match cx.origins.read(Use::Client, place.offset, place.len, buf).await {
        Ok(data) => cx.reply(tag, Ok(()), Some(data), false),
        Err(errno) => cx.reply(tag, Err(errno), None, false),
    }
}

pub(crate) async fn write(cx: Rc<Context>, tag: Tag, request: Request, fua: bool) {
    let place = cx.shape.place(&request);
    let _claim = cx.claims.claim(u64::from(place.unit), place.pages.clone());
    cx.population.requested(place.unit, place.len);
    cx.fence.passed(&cx.exec).await;
    let fua = fua && !mutant::is_active("fua-ignored");
    let (result, _) = cx.origins.write(Use::Client, place.range(), fua, request.buf).await;
    cx.reply(tag, result, None, false);
}

pub(crate) async fn discard(cx: Rc<Context>, tag: Tag, request: Request, kind: IoKind) {
    let place = cx.shape.place(&request);
    let unclaimed = mutant::is_active("trim-unclaimed");
    let _claim = (!unclaimed).then(|| cx.claims.claim(u64::from(place.unit), place.pages.clone()));
    cx.fence.passed(&cx.exec).await;
    let result = cx.origins.change(Use::Unpaced, kind, place.range(), None).await;
    cx.reply(tag, result, None, false);
}

/// FLUSH of a volume whose acknowledged writes are on the origin.
pub(crate) async fn flush(cx: Rc<Context>, tag: Tag, offset: u64) {
    let result = match mutant::is_active("flush-skips-origin") {
        true => Ok(()),
        false if mutant::is_active("flush-of-first-volume") => cx.origins.of(0).flush().await,
        false => cx.origins.at(offset).flush().await,
    };
    cx.reply(tag, result, None, false);
}
