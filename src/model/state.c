/* How large the states of recurrent layers are: pure sizes, which a backend that is a plugin has a
 * copy of. */
#include "model/model.h"

size_t model_conv_state_floats(const struct model_hparams *hp)
{
    return hp->conv_width ? (size_t)(hp->conv_width - 1) * hp->conv_channels : 0;
}

size_t model_state_floats(const struct model_hparams *hp)
{
    return model_conv_state_floats(hp) + (size_t)hp->n_rec_head * hp->rec_key * hp->rec_value;
}

size_t model_state_bytes(const struct model *m)
{
    size_t n = 0;
    for (uint32_t i = 0; i < m->hp.n_layer && m->hp.conv_width; i++)
        n += m->layers[i].recurrent;
    return n * model_state_floats(&m->hp) * sizeof(float);
}
