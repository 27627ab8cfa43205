"""The official CIFAR releases: their files, md5 sums and class names (Krizhevsky 2009)."""

from collections.abc import Callable
from dataclasses import dataclass

from elfnet.data import cifar_formats
from elfnet.data.source import LabelledImages

OFFICIAL_URL = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True)
class Layout:
    """One version (binary or python) of a release: the archive and the files in its one directory."""

    archive: str
    directory: str
    train_files: tuple[str, ...]
    test_file: str
    read: Callable[[bytes, str], LabelledImages]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train_files, self.test_file)


@dataclass(frozen=True)
class Release:
    """A data set and its versions, in the order they are looked for; a download takes the first."""

    name: str
    class_names: tuple[str, ...]
    layouts: tuple[Layout, ...]


_CIFAR100_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CIFAR10 = Release(
    name="cifar10",
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    layouts=(
        Layout(
            archive="cifar-10-binary.tar.gz",
            directory="cifar-10-batches-bin",
            train_files=tuple(f"{batch}.bin" for batch in _BATCHES),
            test_file="test_batch.bin",
            read=cifar_formats.cifar10_binary,
        ),
        Layout(
            archive="cifar-10-python.tar.gz",
            directory="cifar-10-batches-py",
            train_files=_BATCHES,
            test_file="test_batch",
            read=cifar_formats.cifar10_python,
        ),
    ),
)

CIFAR100 = Release(
    name="cifar100",
    class_names=tuple(_CIFAR100_NAMES.split()),
    layouts=(
        Layout(
            archive="cifar-100-binary.tar.gz",
            directory="cifar-100-binary",
            train_files=("train.bin",),
            test_file="test.bin",
            read=cifar_formats.cifar100_binary,
        ),
        Layout(
            archive="cifar-100-python.tar.gz",
            directory="cifar-100-python",
            train_files=("train",),
            test_file="test",
            read=cifar_formats.cifar100_python,
        ),
    ),
)

OFFICIAL_MD5 = {
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
