//! What users of the library and of the command see.

mod analytic;
mod binary;
mod cloudburst;
mod documentation;
mod fabrics;
mod outages;
mod scenarios;
mod support;
mod tr;
mod validation;
