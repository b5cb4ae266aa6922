//! Format version 1 of stores: golden images, every kind of damage, and the documentation.

mod damage;
mod documents;
mod examples;
