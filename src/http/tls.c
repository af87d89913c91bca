/* Who we are to TLS clients: a certificate with its chain, and its key.
 *
 * The library does the records and the handshake (GnuTLS, on the loop thread) and asks here for the
 * certificate. Each connection is given the server's identity when it is accepted and holds it to
 * its end, so that a new one can take its place at any time:
 *
 *      set_identity (any thread) -> next_identity -> the loop takes it -> connections from then on
 *
 * Keys with a password are refused: nobody is there to type it after a restart. */
#include "base/log.h"
#include "base/mem.h"
#include "http/internal.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CHAIN 16

struct identity {
    gnutls_pcert_st chain[MAX_CHAIN]; /* [n_chain] our own certificate first */
    unsigned n_chain;
    gnutls_privkey_t key;
    uint32_t n_users; /* loop thread: the server and its connections */
};

static gnutls_datum_t datum_of(const char *pem)
{
    return (gnutls_datum_t){.data = (unsigned char *)pem, .size = (unsigned)strlen(pem)};
}

/* Do both have the same public key? */
static bool key_fits(const struct identity *id)
{
    unsigned char of_key[64], of_cert[64];
    size_t n_key = sizeof of_key, n_cert = sizeof of_cert;
    gnutls_pubkey_t pub;
    if (gnutls_pubkey_init(&pub) != 0)
        return false;
    bool ok = gnutls_pubkey_import_privkey(pub, id->key, 0, 0) == 0 &&
              gnutls_pubkey_get_key_id(pub, GNUTLS_KEYID_USE_SHA256, of_key, &n_key) == 0 &&
              gnutls_pubkey_get_key_id(
                  id->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, of_cert, &n_cert) == 0 &&
              n_key == n_cert && memcmp(of_key, of_cert, n_key) == 0;
    gnutls_pubkey_deinit(pub);
    return ok;
}

static enum err read_identity(struct identity *id,
                              const char *cert,
                              const char *key,
                              struct err_info *e)
{
    gnutls_datum_t cert_pem = datum_of(cert), key_pem = datum_of(key);
    unsigned n = MAX_CHAIN;
    int rc = gnutls_pcert_list_import_x509_raw(
        id->chain, &n, &cert_pem, GNUTLS_X509_FMT_PEM, GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
    if (rc != 0)
        return err_set_field(
            e, ERR_FORMAT, "tls-cert", "the certificate cannot be read: %s", gnutls_strerror(rc));
    id->n_chain = n;
    if (n == 0)
        return err_set_field(e, ERR_FORMAT, "tls-cert", "there is no certificate in it");
    if (gnutls_privkey_init(&id->key) != 0)
        return err_set(e, ERR_NOMEM, "no memory for a key");
    rc = gnutls_privkey_import_x509_raw(id->key, &key_pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc == GNUTLS_E_DECRYPTION_FAILED)
        return err_set_field(
            e, ERR_UNSUPPORTED, "tls-key", "the key has a password: remove it first");
    if (rc != 0)
        return err_set_field(
            e, ERR_FORMAT, "tls-key", "the key cannot be read: %s", gnutls_strerror(rc));
    if (!key_fits(id))
        return err_set_field(e, ERR_FORMAT, "tls-key", "the key is not that of the certificate");
    return OK;
}

static void identity_destroy(struct identity *id)
{
    for (unsigned i = 0; i < id->n_chain; i++)
        gnutls_pcert_deinit(&id->chain[i]);
    if (id->key)
        gnutls_privkey_deinit(id->key);
    free(id);
}

enum err identity_create(const char *cert,
                         const char *key,
                         struct identity **out,
                         struct err_info *e)
{
    *out = NULL;
    if (!cert || !key)
        return err_set(e, ERR_INVALID, "TLS needs a certificate and its key");
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES ||
        MHD_is_feature_supported(MHD_FEATURE_HTTPS_CERT_CALLBACK) != MHD_YES)
        return err_set(e, ERR_UNSUPPORTED, "this system's libmicrohttpd has no TLS");
    struct identity *id = mem_zalloc(1, sizeof *id);
    enum err err = read_identity(id, cert, key, e);
    if (err) {
        identity_destroy(id);
        return err;
    }
    id->n_users = 1;
    *out = id;
    return OK;
}

void identity_release(struct identity *id)
{
    if (id && --id->n_users == 0)
        identity_destroy(id);
}

enum err http_server_set_identity(struct http_server *s,
                                  const char *cert,
                                  const char *key,
                                  struct err_info *e)
{
    struct identity *id;
    enum err err = identity_create(cert, key, &id, e);
    if (err)
        return err;
    identity_release(atomic_exchange(&s->next_identity, id)); /* one that was never used */
    uint64_t one = 1;
    (void)!write(s->wake_fd, &one, sizeof one);
    return OK;
}

void identity_take_next(struct http_server *s)
{
    struct identity *id = atomic_exchange(&s->next_identity, NULL);
    if (!id)
        return;
    identity_release(s->identity);
    s->identity = id;
}

/* gnutls_certificate_retrieve_function2: nothing given here is freed there. */
static int choose_identity(gnutls_session_t session,
                           const gnutls_datum_t *authorities,
                           int n_authorities,
                           const gnutls_pk_algorithm_t *algorithms,
                           int n_algorithms,
                           gnutls_pcert_st **chain,
                           unsigned *n_chain,
                           gnutls_privkey_t *key)
{
    (void)authorities;
    (void)n_authorities;
    (void)algorithms;
    (void)n_algorithms;
    const struct conn *c = gnutls_db_get_ptr(session);
    if (!c || !c->identity)
        return -1;
    *chain = c->identity->chain;
    *n_chain = c->identity->n_chain;
    *key = c->identity->key;
    return 0;
}

const struct MHD_OptionItem *tls_options(void)
{
    static char versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    static struct MHD_OptionItem items[3];
    items[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, versions};
    items[1] = (struct MHD_OptionItem){
        MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(intptr_t)choose_identity};
    items[2] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    return items;
}

static gnutls_session_t session_of(const struct conn *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info ? (gnutls_session_t)info->tls_session : NULL;
}

/* The session's pointer for a cache, of which we have none, leads back to the connection. */
void tls_conn_opened(struct http_server *s, struct conn *c)
{
    if (!s->identity)
        return;
    c->identity = s->identity;
    c->identity->n_users++;
    gnutls_session_t session = session_of(c);
    if (session)
        gnutls_db_set_ptr(session, c);
    else
        log_error("http: the library keeps its TLS session to itself");
}

void conn_send_raw(struct conn *c, const void *bytes, size_t n)
{
    gnutls_session_t session = c->identity ? session_of(c) : NULL;
    if (session)
        (void)!gnutls_record_send(session, bytes, n);
    else if (!c->identity)
        (void)!send(c->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}
