"""The network itself from a bundle, for whoever has torch: to compute with it, or to train it further."""

import safetensors.torch
from pydantic import ValidationError
from safetensors import SafetensorError

from elfnet.checkpoint.format import tensors_sha256
from elfnet.deploy.bundle.manifest import WEIGHTS
from elfnet.deploy.bundle.read import Bundle, read_file
from elfnet.errors import RequestError, WorkError
from elfnet.models.attach.signature import GIVEN
from elfnet.models.from_recipe import network_of
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.stages import final_model_of_stored


def network_of_bundle(bundle: Bundle) -> StagedNetwork:
    """Built by the recipe in the manifest, with the weights of the bundle, in evaluation mode."""
    manifest = bundle.manifest
    if manifest.provenance.network.startswith(GIVEN):
        raise RequestError(
            f"{bundle.path} holds a network that was handed in, which no recipe describes: torch cannot rebuild it; "
            "choose backend onnxruntime or openvino"
        )
    *_, channels = manifest.preprocessing.preprocess().shape
    try:
        weights = safetensors.torch.load(read_file(bundle, WEIGHTS))
        model = final_model_of_stored(manifest.provenance.recipe)
        network = network_of(model, classes=len(manifest.class_names), image_channels=channels)
        network.load_state_dict(weights)
    except (SafetensorError, ValidationError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WorkError(f"{bundle.path}: weights and recipe do not fit ({reason}); export the run again") from error
    if tensors_sha256(weights) != manifest.provenance.checkpoint_sha256:
        raise WorkError(f"{bundle.path}: the weights are not those of its checkpoint; export the run again")
    return network.eval()
