/*
 * A request and its reply, and a message with a deadline, over loopback: a server in a thread, a client in
 * the other. Two programs on two machines differ in the addresses alone, and in where their keys come from.
 *
 *     cargo build --release -p cloudburst-ffi
 *     cc -std=c11 -I cloudburst/crates/ffi/include cloudburst/crates/ffi/examples/request_reply.c \
 *        -L target/release -Wl,-rpath,$PWD/target/release -lcloudburst_ffi -lpthread -o request_reply
 *     ./request_reply
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloudburst.h"

/* Ends the program with what the library says, unless a call has succeeded. */
static void must(cloudburst_status status, const char *what)
{
    if (status != CLOUDBURST_STATUS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, cloudburst_status_text(status),
                cloudburst_last_error());
        exit(EXIT_FAILURE);
    }
}

/* Answers each request with itself, until the endpoint is closed. A client that has given up or is gone
   gets no answer, which is nothing to stop for: others are still there. */
static void *serve(void *argument)
{
    const cloudburst_endpoint *server = argument;
    cloudburst_message *request;
    while (cloudburst_receive(server, CLOUDBURST_FOREVER, &request) == CLOUDBURST_STATUS_OK) {
        const uint8_t *bytes = cloudburst_message_bytes(request);
        size_t length = cloudburst_message_length(request);
        if (!cloudburst_message_is_request(request))
            printf("the server has %zu bytes\n", length);
        else if (cloudburst_reply(server, request, bytes, length, NULL) != CLOUDBURST_STATUS_OK)
            fprintf(stderr, "no answer: %s\n", cloudburst_last_error());
        cloudburst_message_free(request);
    }
    return NULL;
}

/* Binds an endpoint of loopback with this key; the holder of `allowed` may speak to it. */
static cloudburst_endpoint *bind_with(const char *secret_key, const char *allowed,
                                      const char *ports)
{
    cloudburst_config *config;
    cloudburst_endpoint *endpoint;
    must(cloudburst_config_key_pair(secret_key, &config), "key");
    if (allowed != NULL)
        must(cloudburst_config_allow(config, allowed), "allow");
    must(cloudburst_config_set_local(config, "127.0.0.1"), "local address");
    must(cloudburst_config_set_ports(config, ports), "ports");
    must(cloudburst_config_set_early_requests(config, allowed != NULL), "early requests");
    must(cloudburst_endpoint_bind(config, &endpoint), "bind");
    cloudburst_config_free(config);
    return endpoint;
}

int main(void)
{
    /* Each end has a key pair: in real life from a file of its own machine. */
    char server_secret[CLOUDBURST_KEY_TEXT_BYTES], server_public[CLOUDBURST_KEY_TEXT_BYTES];
    char client_secret[CLOUDBURST_KEY_TEXT_BYTES], client_public[CLOUDBURST_KEY_TEXT_BYTES];
    must(cloudburst_key_pair_generate(server_secret, sizeof server_secret, server_public,
                                      sizeof server_public),
         "keys of the server");
    must(cloudburst_key_pair_generate(client_secret, sizeof client_secret, client_public,
                                      sizeof client_public),
         "keys of the client");

    printf("Cloudburst %s\n", cloudburst_version());
    cloudburst_endpoint *server = bind_with(server_secret, client_public, "any:2");
    cloudburst_endpoint *client = bind_with(client_secret, NULL, "any:4");
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, server) != 0) {
        perror("cannot start a thread");
        return EXIT_FAILURE;
    }

    /* Where the server is to be found: "server.example:4433-4436" on another machine. */
    char addresses[256];
    if (cloudburst_endpoint_addresses(server, addresses, sizeof addresses) > sizeof addresses)
        return EXIT_FAILURE;
    cloudburst_peer peer;
    must(cloudburst_endpoint_connect(client, addresses, server_public, &peer), "connect");

    const char *question = "are you there?";
    cloudburst_message *reply;
    must(cloudburst_request(client, peer, (const uint8_t *)question, strlen(question), 30000, NULL,
                            &reply),
         "request");
    printf("reply: %.*s\n", (int)cloudburst_message_length(reply),
           (const char *)cloudburst_message_bytes(reply));
    cloudburst_message_free(reply);

    /* A message that is of no use half a minute later. */
    static uint8_t position[100000];
    cloudburst_send_options options = {.deadline_ms = 30000,
                                       .priority = CLOUDBURST_PRIORITY_URGENT};
    cloudburst_receipt receipt;
    must(cloudburst_send(client, peer, position, sizeof position, &options, &receipt), "send");
    printf("delivered after %llu us\n", (unsigned long long)receipt.completion_us);

    /* Closing waits for what is under way, and ends the server's thread. */
    must(cloudburst_endpoint_close(client, 1000, NULL), "close the client");
    must(cloudburst_endpoint_close(server, 1000, NULL), "close the server");
    pthread_join(thread, NULL);
    cloudburst_endpoint_free(client);
    cloudburst_endpoint_free(server);
    return EXIT_SUCCESS;
}
