// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs several futures in one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Runs futures together; returns their results, in order.
pub async fn each<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut open: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = open.iter().map(|_| None).collect();
    poll_fn(move |context| {
        for (future, result) in open.iter_mut().zip(&mut done) {
            if result.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                *result = Some(output);
            }
        }
        if done.iter().any(Option::is_none) {
            return Poll::Pending;
        }
        Poll::Ready(done.iter_mut().filter_map(Option::take).collect())
    })
    .await
}
