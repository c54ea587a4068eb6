/*
 * Cloudburst for C and C++: messages that must not wait, over several UDP paths at once.
 *
 * Link with -lcloudburst_ffi. The README of the crate cloudburst-ffi has the command lines and an example.
 *
 * Ownership: what a call returns through a pointer to a pointer is freed by the caller, once, with the
 * _free function of its kind; NULL may be freed. Bytes and texts that are handed in are copied.
 *
 * Threads: any number of threads may use an endpoint at once, and one at a time everything else. Calls
 * that wait block their own thread alone. Nobody may be in a call with an endpoint when it is freed:
 * cloudburst_endpoint_close has calls that wait return.
 *
 * Errors: calls return a status, 0 for success, and write results only then; pointers to handles are set
 * to NULL otherwise. cloudburst_last_error has the words. Texts are UTF-8.
 *
 * Made by `cargo xtask header` from the crate's source; change that. MIT OR Apache-2.0.
 */

#ifndef CLOUDBURST_H
#define CLOUDBURST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Waits without an end, where a call takes a time in milliseconds.
#define CLOUDBURST_FOREVER UINT32_MAX

// Bytes of a buffer that holds any key as text, with its NUL.
#define CLOUDBURST_KEY_TEXT_BYTES 83

// Priority of a message that waits until nothing else has something to send.
#define CLOUDBURST_PRIORITY_BACKGROUND -1

// Priority of most messages, and of those without options.
#define CLOUDBURST_PRIORITY_NORMAL 0

// Priority of a message that goes before all others.
#define CLOUDBURST_PRIORITY_URGENT 1

// Outcome of a call: 0 is success, and all else says what went wrong.
//
// Codes keep their numbers; later versions may add others.
enum cloudburst_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The call has done what it is for.
    CLOUDBURST_STATUS_OK = 0,
    // Nothing has happened within the time that was given; the call may be repeated.
    CLOUDBURST_STATUS_PENDING = 1,
    // An argument is wrong: NULL where that is not allowed, or a text that is no UTF-8.
    CLOUDBURST_STATUS_INVALID_ARGUMENT = 2,
    // A setting is outside of its bounds, or does not go with another.
    CLOUDBURST_STATUS_INVALID_SETTING = 3,
    // A text is no key, or one of another kind than is needed.
    CLOUDBURST_STATUS_INVALID_KEY = 4,
    // A text is no address, or nothing can be sent there.
    CLOUDBURST_STATUS_INVALID_ADDRESS = 5,
    // The name of a host cannot be resolved.
    CLOUDBURST_STATUS_NOT_RESOLVED = 6,
    // The text does not fit into the buffer.
    CLOUDBURST_STATUS_BUFFER_TOO_SMALL = 7,
    // Another process has the port.
    CLOUDBURST_STATUS_ADDRESS_IN_USE = 8,
    // No interface of this machine has the address.
    CLOUDBURST_STATUS_ADDRESS_NOT_LOCAL = 9,
    // A port needs a privilege that the program lacks.
    CLOUDBURST_STATUS_NOT_PERMITTED = 10,
    // The system does not do what is needed.
    CLOUDBURST_STATUS_SYSTEM = 11,
    // Nobody is known by the id of the peer, or no longer.
    CLOUDBURST_STATUS_NO_PEER = 12,
    // The message is longer than can be sent.
    CLOUDBURST_STATUS_TOO_LARGE = 13,
    // A quota is used up.
    CLOUDBURST_STATUS_FULL = 14,
    // The time of the message or request is over, or nothing was heard of the peer for too long.
    CLOUDBURST_STATUS_TIMED_OUT = 15,
    // No path reaches the peer: nobody listens there.
    CLOUDBURST_STATUS_UNREACHABLE = 16,
    // So many packets were sent as the budget allows, and it is not there.
    CLOUDBURST_STATUS_BUDGET_SPENT = 17,
    // The receiver had no capacity, to the end.
    CLOUDBURST_STATUS_BUSY = 18,
    // The receiver refuses the message.
    CLOUDBURST_STATUS_REFUSED = 19,
    // The peer has closed.
    CLOUDBURST_STATUS_PEER_CLOSED = 20,
    // The receiver may have taken the message or not: it was restarted, or no longer knows.
    CLOUDBURST_STATUS_OUTCOME_UNKNOWN = 21,
    // Too much was lost at a reserved rate, and nothing is sent any more.
    CLOUDBURST_STATUS_CIRCUIT_BROKEN = 22,
    // The message or request was cancelled, its peer was forgotten, or nobody waits for the reply.
    CLOUDBURST_STATUS_CANCELLED = 23,
    // The peer has the request, and answers that there is no reply.
    CLOUDBURST_STATUS_NO_REPLY = 24,
    // The message is no request, or was answered already.
    CLOUDBURST_STATUS_NOT_TO_BE_ANSWERED = 25,
    // The endpoint is closed.
    CLOUDBURST_STATUS_CLOSED = 26,
    // An error inside of the library: close the endpoint, and report it.
    CLOUDBURST_STATUS_PANICKED = 27,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cloudburst_status cloudburst_status;
#else
typedef int32_t cloudburst_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Settings of an endpoint. Those that are not set have defaults that may be used on the Internet.
typedef struct cloudburst_config cloudburst_config;

// An endpoint on UDP sockets, with a thread of its own.
typedef struct cloudburst_endpoint cloudburst_endpoint;

// A message or request that has arrived, or the reply to a request.
typedef struct cloudburst_message cloudburst_message;

// A message under way, which somebody waits for.
typedef struct cloudburst_sending cloudburst_sending;

// Somebody whom messages are exchanged with, as one endpoint knows it: at another endpoint it stands for
// nobody. Two are of the same peer if all three words are equal.
typedef struct cloudburst_peer {
    // The words of the id, of which none means anything by itself.
    uint32_t words[3];
} cloudburst_peer;

// Counts what became of messages that were under way when an endpoint was closed.
typedef struct cloudburst_close_report {
    // Messages that their receivers have.
    uint64_t delivered_messages;
    // Bytes of the messages that their receivers have.
    uint64_t delivered_bytes;
    // Messages that their receivers do not have.
    uint64_t lost_messages;
    // Bytes of the messages that their receivers do not have.
    uint64_t lost_bytes;
    // Messages of which nobody has said whether they arrived.
    uint64_t unknown_messages;
    // Bytes of the messages of which nobody has said whether they arrived.
    uint64_t unknown_bytes;
} cloudburst_close_report;

// Options of a message. All zero is what messages without options have.
typedef struct cloudburst_send_options {
    // Abandons the message so many milliseconds after the call; 0 leaves that to the endpoint's lifetime.
    uint32_t deadline_ms;
    // One of `CLOUDBURST_PRIORITY_BACKGROUND`, `_NORMAL` and `_URGENT`.
    int32_t priority;
    // Not 0: to take it twice does no harm, so that it goes on if its receiver is restarted.
    uint32_t idempotent;
} cloudburst_send_options;

// Says how a message was delivered.
typedef struct cloudburst_receipt {
    // Microseconds from the call until the receiver's stop arrived.
    uint64_t completion_us;
    // Packets that the message has.
    uint32_t symbols;
    // Packets that were sent.
    uint32_t sent;
} cloudburst_receipt;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library, such as "0.1.0". The text is never freed.
const char *cloudburst_version(void);

// Makes settings with a key that all ends share, such as `cloudburst keygen --shared` writes: for a few
// machines of one owner.
//
// # Safety
//
// `key` is NULL or a text that ends with NUL; `config` is NULL or may be written to.
cloudburst_status cloudburst_config_shared_key(const char *key,
                                               struct cloudburst_config **config);

// Makes settings with a secret key of the endpoint's own, such as `cloudburst keygen` writes. Until
// `cloudburst_config_allow` names others, nobody else may begin to speak to the endpoint.
//
// # Safety
//
// `secret_key` is NULL or a text that ends with NUL; `config` is NULL or may be written to.
cloudburst_status cloudburst_config_key_pair(const char *secret_key,
                                             struct cloudburst_config **config);

// Lets the holder of this public key speak to the endpoint, besides those that were named before. It
// needs settings of `cloudburst_config_key_pair`.
//
// # Safety
//
// `config` is NULL or came from this library; `public_key` is NULL or a text that ends with NUL.
cloudburst_status cloudburst_config_allow(struct cloudburst_config *config,
                                          const char *public_key);

// Binds these addresses, with commas between, instead of all of the machine: "192.0.2.7" or
// "192.0.2.7,2001:db8::7".
//
// # Safety
//
// `config` is NULL or came from this library; `addresses` is NULL or a text that ends with NUL.
cloudburst_status cloudburst_config_set_local(struct cloudburst_config *config,
                                              const char *addresses);

// Binds these ports at each address instead of 16 that the system chooses: "4433", "4433-4436", or
// "any:4" for so many that it chooses. Ports that are named are those of somebody who is to be found, and
// requests that come before the first `cloudburst_receive` are kept.
//
// # Safety
//
// `config` is NULL or came from this library; `ports` is NULL or a text that ends with NUL.
cloudburst_status cloudburst_config_set_ports(struct cloudburst_config *config,
                                              const char *ports);

// Marks what is sent with this differentiated services code point, 0 to 63. Linux alone takes others
// than 0.
//
// # Safety
//
// `config` is NULL or came from this library.
cloudburst_status cloudburst_config_set_dscp(struct cloudburst_config *config,
                                             uint8_t dscp);

// Abandons messages that are not delivered within so many milliseconds from their first transmission, 10
// to 60,000. Default 10,000.
//
// # Safety
//
// `config` is NULL or came from this library.
cloudburst_status cloudburst_config_set_lifetime(struct cloudburst_config *config,
                                                 uint32_t lifetime_ms);

// Sends and takes messages of so many bytes at most, up to 32 MiB less 17 bytes. Default 4 MiB.
//
// # Safety
//
// `config` is NULL or came from this library.
cloudburst_status cloudburst_config_set_max_message_bytes(struct cloudburst_config *config,
                                                          size_t bytes);

// Keeps requests that come before the first `cloudburst_receive`, or has them answered at once that
// nobody is there. Default: kept where ports are named.
//
// # Safety
//
// `config` is NULL or came from this library.
cloudburst_status cloudburst_config_set_early_requests(struct cloudburst_config *config,
                                                       bool are_kept);

// Frees settings. Endpoints that were bound with them go on.
//
// # Safety
//
// `config` is NULL, or came from this library and was not freed before.
void cloudburst_config_free(struct cloudburst_config *config);

// Binds sockets with these settings and starts an endpoint. The settings may be freed or used again.
//
// # Safety
//
// `config` is NULL or came from this library; `endpoint` is NULL or may be written to.
cloudburst_status cloudburst_endpoint_bind(const struct cloudburst_config *config,
                                           struct cloudburst_endpoint **endpoint);

// Writes the addresses that the endpoint is bound to, with commas between and a NUL at the end:
// "127.0.0.1:4433,127.0.0.1:4434". Returns the bytes that this takes; if `size` is less, an empty text is
// written. Returns 0 if `endpoint` is NULL.
//
// `cloudburst_endpoint_connect` takes them where `cloudburst_config_set_local` has named addresses. Without,
// the endpoint is bound to all of the machine, which `0.0.0.0` and `[::]` stand for: nobody can send there,
// and only the ports are of use.
//
// # Safety
//
// `endpoint` is NULL or came from this library; `buffer` is NULL or may be written to for `size` bytes.
size_t cloudburst_endpoint_addresses(const struct cloudburst_endpoint *endpoint,
                                     char *buffer,
                                     size_t size);

// Makes a peer known at these addresses: "host:4433", "192.0.2.7:4433-4436", `"[2001:db8::7]:4433"`, or
// several with commas between, all of one machine. Names are looked up, which may take seconds. Nothing
// is sent yet. `public_key` is the peer's, and NULL where all ends share a key.
//
// # Safety
//
// `endpoint` is NULL or came from this library; `remotes` and `public_key` are NULL or texts that end
// with NUL; `peer` is NULL or may be written to.
cloudburst_status cloudburst_endpoint_connect(const struct cloudburst_endpoint *endpoint,
                                              const char *remotes,
                                              const char *public_key,
                                              struct cloudburst_peer *peer);

// Forgets a peer: what is under way to it is abandoned, and its memory freed. Somebody who is gone
// already is no error.
//
// # Safety
//
// `endpoint` is NULL or came from this library.
cloudburst_status cloudburst_endpoint_forget(const struct cloudburst_endpoint *endpoint,
                                             struct cloudburst_peer peer);

// Takes nothing new, waits until what is under way is delivered or abandoned, but not longer than so
// many milliseconds, tells the peers, and ends. All calls that wait on this endpoint, in whichever
// threads, return `CLOUDBURST_STATUS_CLOSED` then. The handle is still to be freed. `report` may be NULL.
// `CLOUDBURST_FOREVER` waits for two minutes at most, which is longer than any message lives.
//
// # Safety
//
// `endpoint` is NULL or came from this library; `report` is NULL or may be written to.
cloudburst_status cloudburst_endpoint_close(const struct cloudburst_endpoint *endpoint,
                                            uint32_t within_ms,
                                            struct cloudburst_close_report *report);

// Frees an endpoint. One that was not closed ends at once, unless messages that were enqueued are
// still held, and what is under way is cancelled. No other thread may be in a call with it. The
// endpoint's own thread is not waited for, and may run for a moment longer.
//
// # Safety
//
// `endpoint` is NULL, or came from this library, was not freed before, and nobody uses it any more.
void cloudburst_endpoint_free(struct cloudburst_endpoint *endpoint);

// Makes a key pair: the secret half for the caller's own file, and the public one for others. Buffers of
// `CLOUDBURST_KEY_TEXT_BYTES` hold them; if one is too small, neither is written.
//
// # Safety
//
// Each buffer is NULL, or may be written to for the bytes that are stated.
cloudburst_status cloudburst_key_pair_generate(char *secret_key,
                                               size_t secret_key_size,
                                               char *public_key,
                                               size_t public_key_size);

// Makes a key that all ends share, with a number from 1 to 255. A buffer of
// `CLOUDBURST_KEY_TEXT_BYTES` holds it.
//
// # Safety
//
// The buffer is NULL, or may be written to for the bytes that are stated.
cloudburst_status cloudburst_shared_key_generate(uint8_t number, char *key, size_t key_size);

// Returns the public half of a secret key, to be given to others.
//
// # Safety
//
// `secret_key` is NULL or a text that ends with NUL; the buffer is NULL, or may be written to for the
// bytes that are stated.
cloudburst_status cloudburst_public_key(const char *secret_key,
                                        char *public_key,
                                        size_t public_key_size);

// Waits for the next message or request, but not longer than so many milliseconds: then it returns
// `CLOUDBURST_STATUS_PENDING`. Several threads may wait at once; each message goes to one of them.
//
// # Safety
//
// `endpoint` is NULL or came from this library; `message` is NULL or may be written to.
cloudburst_status cloudburst_receive(const struct cloudburst_endpoint *endpoint,
                                     uint32_t timeout_ms,
                                     struct cloudburst_message **message);

// Sends a request and waits for the reply, for so many milliseconds in all; without an end only if that
// is `CLOUDBURST_FOREVER`. `CLOUDBURST_STATUS_NO_REPLY` means that the peer has it, and says there is no
// reply. `options` may be NULL.
//
// # Safety
//
// `endpoint` is NULL or came from this library; `message` points to `length` bytes, or is NULL for none;
// `options` is NULL or may be read; `reply` is NULL or may be written to.
cloudburst_status cloudburst_request(const struct cloudburst_endpoint *endpoint,
                                     struct cloudburst_peer peer,
                                     const uint8_t *message,
                                     size_t length,
                                     uint32_t timeout_ms,
                                     const struct cloudburst_send_options *options,
                                     struct cloudburst_message **reply);

// Answers a request, and waits until the peer has the answer. The request is still to be freed. `receipt`
// may be NULL.
//
// # Safety
//
// `endpoint` and `request` are NULL or came from this library; `message` points to `length` bytes, or is
// NULL for none; `receipt` is NULL or may be written to.
cloudburst_status cloudburst_reply(const struct cloudburst_endpoint *endpoint,
                                   const struct cloudburst_message *request,
                                   const uint8_t *message,
                                   size_t length,
                                   struct cloudburst_receipt *receipt);

// Answers a request that it is refused, in a few words that its sender gets, and waits for nothing. A
// request that is freed without an answer is answered that there is none.
//
// # Safety
//
// `endpoint` and `request` are NULL or came from this library; `reason` is NULL or a text that ends with
// NUL.
cloudburst_status cloudburst_fail(const struct cloudburst_endpoint *endpoint,
                                  const struct cloudburst_message *request,
                                  const char *reason);

// Returns the bytes of a message, which live until it is freed. Of an empty message it is not NULL, and
// not to be read.
//
// # Safety
//
// `message` is NULL or came from this library.
const uint8_t *cloudburst_message_bytes(const struct cloudburst_message *message);

// Returns the number of bytes of a message.
//
// # Safety
//
// `message` is NULL or came from this library.
size_t cloudburst_message_length(const struct cloudburst_message *message);

// Returns the peer that a message came from; of NULL, an id that stands for nobody.
//
// # Safety
//
// `message` is NULL or came from this library.
struct cloudburst_peer cloudburst_message_peer(const struct cloudburst_message *message);

// Writes the public key of whoever sent the message, with a NUL at the end, where key pairs say who it is.
// Returns the bytes that this takes, and 0 where there is none; if `size` is less, an empty text is
// written.
//
// # Safety
//
// `message` is NULL or came from this library; `buffer` is NULL or may be written to for `size` bytes.
size_t cloudburst_message_sender_key(const struct cloudburst_message *message,
                                     char *buffer,
                                     size_t size);

// Returns true where the sender of a message waits for a reply.
//
// # Safety
//
// `message` is NULL or came from this library.
bool cloudburst_message_is_request(const struct cloudburst_message *message);

// Returns true where this is a request that its sender has given up: nobody waits for a reply.
//
// # Safety
//
// `message` is NULL or came from this library.
bool cloudburst_message_is_cancelled(const struct cloudburst_message *message);

// Frees a message. A request that was not answered is answered that there is no reply.
//
// # Safety
//
// `message` is NULL, or came from this library, was not freed before, and nobody uses it any more.
void cloudburst_message_free(struct cloudburst_message *message);

// Sends a message and waits until the peer has it, or it is abandoned. While as much is under way as the
// quotas allow, it waits for its turn first. `options` and `receipt` may be NULL.
//
// # Safety
//
// `endpoint` is NULL or came from this library; `message` points to `length` bytes, or is NULL for none;
// `options` is NULL or may be read, `receipt` NULL or may be written to.
cloudburst_status cloudburst_send(const struct cloudburst_endpoint *endpoint,
                                  struct cloudburst_peer peer,
                                  const uint8_t *message,
                                  size_t length,
                                  const struct cloudburst_send_options *options,
                                  struct cloudburst_receipt *receipt);

// Starts to send a message, and returns something to wait for it by. It waits itself only while as much
// is under way as the quotas allow. `options` may be NULL.
//
// # Safety
//
// As for `cloudburst_send`; `sending` is NULL or may be written to.
cloudburst_status cloudburst_enqueue(const struct cloudburst_endpoint *endpoint,
                                     struct cloudburst_peer peer,
                                     const uint8_t *message,
                                     size_t length,
                                     const struct cloudburst_send_options *options,
                                     struct cloudburst_sending **sending);

// Waits until the peer has the message, or it is abandoned, but not longer than so many milliseconds:
// then it returns `CLOUDBURST_STATUS_PENDING`, and may be called again. Once the message has ended it
// always returns the same. `receipt` may be NULL.
//
// # Safety
//
// `sending` is NULL or came from this library; `receipt` is NULL or may be written to.
cloudburst_status cloudburst_sending_wait(const struct cloudburst_sending *sending,
                                          uint32_t timeout_ms,
                                          struct cloudburst_receipt *receipt);

// Frees it. A message that is still under way is cancelled: the peer may have it or get it all the same.
//
// # Safety
//
// `sending` is NULL, or came from this library, was not freed before, and nobody uses it any more.
void cloudburst_sending_free(struct cloudburst_sending *sending);

// Frees it and lets the message go its way, as long as its endpoint lives.
//
// # Safety
//
// As for `cloudburst_sending_free`.
void cloudburst_sending_detach(struct cloudburst_sending *sending);

// Returns what a status means, in general. The text is never freed; of a number that is no status it
// says that.
const char *cloudburst_status_text(int32_t status);

// Returns what went wrong in the last call of this thread that failed, with its values and what to do;
// an empty text if none has. It lives until the next call of this thread that fails, or its end.
const char *cloudburst_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CLOUDBURST_H */
