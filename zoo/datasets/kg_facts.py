"""What is known of the published knowledge graphs; needs no torch."""

from __future__ import annotations

from zoo.datasets.facts import DatasetFacts, Property, Source

_TAIL = Property(
    name="tail",
    unit="probability",
    description="that an entity completes the fact; entities are ranked by it",
    kind="binary",
)
_GRAIL = "K. Teru et al., Inductive Relation Prediction by Subgraph Reasoning, ICML (2020)"
_GRAIL_AT = (
    "https://raw.githubusercontent.com/kkteru/grail/"
    "2a3dffa719518e7e6250e355a2fb37cd932de91e/data/{}"
)
_CONVE = "T. Dettmers et al., Convolutional 2D Knowledge Graph Embeddings, AAAI (2018)"
_CONVE_AT = (
    "https://raw.githubusercontent.com/TimDettmers/ConvE/"
    "f3c0eb286025410fa5b4c04696c918264163d0ca/{}"
)
_KOK = "S. Kok and P. Domingos, Statistical Predicate Invention, ICML (2007)"
_FETCHED = "the addresses it can be fetched from were not tried where this was written"
_COUNTED = ("relations", "entities", "facts", "valid", "test", "test_entities", "test_facts")


def _inductive(
    name: str,
    *,
    title: str,
    licence: str,
    files: tuple[tuple[str, str, int], ...],
    counts: tuple[int, ...],
) -> DatasetFacts:
    return DatasetFacts(
        name=f"kg.{name}",
        title=title,
        licence=licence,
        citation=_GRAIL,
        properties=(_TAIL,),
        sources=tuple(
            Source(filename=file, sha256=sha256, size=size, mirrors=(_GRAIL_AT.format(file),))
            for file, sha256, size in files
        ),
        counts=dict(zip(_COUNTED, counts, strict=True)),
        notes=("tested on a graph of entities that training never saw", _FETCHED),
        metric="mrr",
    )


def _archive(
    name: str,
    *,
    title: str,
    licence: str,
    citation: str,
    file: tuple[str, str, int],
    counts: tuple[int, ...],
) -> DatasetFacts:
    filename, sha256, size = file
    mirrors = (_CONVE_AT.format(filename),)
    return DatasetFacts(
        name=f"kg.{name}",
        title=title,
        licence=licence,
        citation=citation,
        properties=(_TAIL,),
        sources=(Source(filename=filename, sha256=sha256, size=size, mirrors=mirrors),),
        counts=dict(zip(_COUNTED[:5], counts, strict=True)),
        notes=(_FETCHED,),
        metric="mrr",
    )


_FREEBASE = "derived from Freebase (CC BY 2.5); the repository states none"
_WORDNET = "derived from WordNet 3.0 (WordNet licence); the repository states none"

SETS: dict[str, DatasetFacts] = {
    "fb15k237_v1": _inductive(
        "fb15k237_v1",
        title="FB15k-237 v1, inductive",
        licence=_FREEBASE,
        files=(
            (
                "fb237_v1/train.txt",
                "74ef3120fe38a22e5131064d23108b88a8d339496057fa8467d80dcda8f1cec1",
                306475,
            ),
            (
                "fb237_v1/valid.txt",
                "d4c2698d7dc36c0dc39ffb3d810caeafe530d779bf9f6451fac2027f41c2ff6d",
                35308,
            ),
            (
                "fb237_v1/test.txt",
                "130534f98bc3b9621bc866035098b132091e8bc749fbad327b5978f3d47f49f7",
                34735,
            ),
            (
                "fb237_v1_ind/train.txt",
                "049829f7047ecf0e0bff0769efca31bc7f811f760c4ffcb20a5680f789b00c61",
                147145,
            ),
            (
                "fb237_v1_ind/valid.txt",
                "ac817123c4177ef46b08a3802380a355282b99d4283c43474c9dd91c082107dd",
                15165,
            ),
            (
                "fb237_v1_ind/test.txt",
                "c79d39372be30a3864cfe5094b3022f38b57d88c351dbbfa2d9e7f3368ac23aa",
                14846,
            ),
        ),
        counts=(180, 1594, 4245, 489, 205, 1093, 1993),
    ),
    "fb15k237_v2": _inductive(
        "fb15k237_v2",
        title="FB15k-237 v2, inductive",
        licence=_FREEBASE,
        files=(
            (
                "fb237_v2/train.txt",
                "542f81af46d6727979278643105ba7c236dd8b29ee5d9962e3c3fa295ab8869c",
                722862,
            ),
            (
                "fb237_v2/valid.txt",
                "59e07dcb883b28bb35585ba95576e4ebb2a71ddbc906119abcc4c87b28198d0c",
                87596,
            ),
            (
                "fb237_v2/test.txt",
                "95da050e60b94f285cdf18ea7899b34df9e0a4a1d638f5ec6ff99caef36a2beb",
                89741,
            ),
            (
                "fb237_v2_ind/train.txt",
                "6756f8d4aa688bc1a18c1106117a7fde94e0469f223f5d00954846afce471e54",
                326955,
            ),
            (
                "fb237_v2_ind/valid.txt",
                "2c3b4430cac899b868c9dd22ece0eae830ca62c8a6c0bf8610c670bbeaf7d6d8",
                37244,
            ),
            (
                "fb237_v2_ind/test.txt",
                "17c16e008cb6dfdc67ef0f375aab0a8fee2b087c7d687a72f5217b789d0c4a10",
                38098,
            ),
        ),
        counts=(200, 2608, 9739, 1166, 478, 1660, 4145),
    ),
    "fb15k237_v3": _inductive(
        "fb15k237_v3",
        title="FB15k-237 v3, inductive",
        licence=_FREEBASE,
        files=(
            (
                "fb237_v3/train.txt",
                "0f27b7f00d3e34964450c22445d17f7612d12d7c382caa3317f45bfe7465f299",
                1391287,
            ),
            (
                "fb237_v3/valid.txt",
                "8b034e73fe64af9c7baf1e12704a94e7e9a9e6b9242feb498c69ebd65bccf269",
                170085,
            ),
            (
                "fb237_v3/test.txt",
                "f93ff5277296486e2ce5d035e46b81b24b89e55a7a8e41196636482aeb50a49b",
                171303,
            ),
            (
                "fb237_v3_ind/train.txt",
                "2805f9237816f5bb5bb1ff1fbc3d37cc0beb99047bef3a6bd82cc1f6947e8525",
                560703,
            ),
            (
                "fb237_v3_ind/valid.txt",
                "76f7691aa597d43d704af047d01a5f4d266c02733c52a5c340c2bea4a85dd281",
                65038,
            ),
            (
                "fb237_v3_ind/test.txt",
                "7dbd4d74210ffd5029d95327639f83c3b46f8bd4ee3571e619812b367d0880da",
                65726,
            ),
        ),
        counts=(215, 3668, 17986, 2194, 865, 2501, 7406),
    ),
    "fb15k237_v4": _inductive(
        "fb15k237_v4",
        title="FB15k-237 v4, inductive",
        licence=_FREEBASE,
        files=(
            (
                "fb237_v4/train.txt",
                "b9fa0f2650a1ab7687e21e0aec24bb51c0b0eacf0d88c8780c03c9b201b9148d",
                2102632,
            ),
            (
                "fb237_v4/valid.txt",
                "d99dedcd13bc0cd338a299a895685b66f15e0b7ed42477d40f1ad1a65ce6d483",
                259213,
            ),
            (
                "fb237_v4/test.txt",
                "f1ecc866636b2704bd6f7cae53d2bbeea414fa88c1f2b4ab9f1924719bd505c8",
                259175,
            ),
            (
                "fb237_v4_ind/train.txt",
                "ef55c03e05d5eeeec97fe2030e92bc36bd5ee9311b770ae0a3fd812982686e8d",
                900449,
            ),
            (
                "fb237_v4_ind/valid.txt",
                "0a237c20719267449388e1d43995ccf67da5a3c82085ba5d2e3996c77dc73921",
                110395,
            ),
            (
                "fb237_v4_ind/test.txt",
                "8e6e19adb9b154348897bf896b5305a76126bc4d79a21705ea47e4efce2d84f3",
                111402,
            ),
        ),
        counts=(219, 4707, 27203, 3352, 1424, 3051, 11714),
    ),
    "wn18rr_v1": _inductive(
        "wn18rr_v1",
        title="WN18RR v1, inductive",
        licence=_WORDNET,
        files=(
            (
                "WN18RR_v1/train.txt",
                "4cc72d4fdcc8206e208e1f59f3c778be5de4a68cfe76776d15245b0d2c08d396",
                213160,
            ),
            (
                "WN18RR_v1/valid.txt",
                "5cebd29da8ada35ac73b6875329884cdf83943ddea454e9f70cc43b423ea479b",
                24758,
            ),
            (
                "WN18RR_v1/test.txt",
                "f1cb44e999e2540a0a614f4bb710c7f82a9304432ff37ce282749b56c66d0d20",
                25248,
            ),
            (
                "WN18RR_v1_ind/train.txt",
                "7d1b73c5994e9aa816b34e33ee10707656803ba6b8a0f6066cae7ddc04f87553",
                67372,
            ),
            (
                "WN18RR_v1_ind/valid.txt",
                "cfa28b9d75dbab17ea82a9443a5bf8acb738e60267cc63f8a221b38967e1d238",
                7974,
            ),
            (
                "WN18RR_v1_ind/test.txt",
                "6df8c00a2e0cf1a4b484ac638c081198926fcbc411ce2e12ccc79d432eead269",
                8101,
            ),
        ),
        counts=(9, 2746, 5410, 630, 188, 922, 1618),
    ),
    "wn18rr_v2": _inductive(
        "wn18rr_v2",
        title="WN18RR v2, inductive",
        licence=_WORDNET,
        files=(
            (
                "WN18RR_v2/train.txt",
                "a14a902df92e32f4aeb65761560072a007ae915308bb8a7a03c58dc1e9c2a9ad",
                607710,
            ),
            (
                "WN18RR_v2/valid.txt",
                "2d3f6703d87fe1605f636736f0e848d9750b8e1593bd41101554ecbb41a1d836",
                73166,
            ),
            (
                "WN18RR_v2/test.txt",
                "04e03f270adf4970132ad51ab1a4022e46e790e9b662890ce4e13d31e6d096ad",
                75199,
            ),
            (
                "WN18RR_v2_ind/train.txt",
                "8dc9bb459e6306737a083b15698ed1420ce8dc57e27f8a42ab7b90c26dfc5154",
                160235,
            ),
            (
                "WN18RR_v2_ind/valid.txt",
                "fc32db7cb56dba0ff05bf57efd8a2279f0825dc6ae763c9d32281a9a1373c09a",
                17196,
            ),
            (
                "WN18RR_v2_ind/test.txt",
                "3b3942ce7665f1a6667721f5eab946bde79a5929f1996c5af16e0b092a5084bb",
                18191,
            ),
        ),
        counts=(10, 6954, 15262, 1838, 441, 2757, 4011),
    ),
    "wn18rr_v3": _inductive(
        "wn18rr_v3",
        title="WN18RR v3, inductive",
        licence=_WORDNET,
        files=(
            (
                "WN18RR_v3/train.txt",
                "324a2b04b621bfe8d2dd98ad1c585fbc7efefb1548e92b5d10afc08733286aa7",
                1009325,
            ),
            (
                "WN18RR_v3/valid.txt",
                "7f008df4879d36ef70a5c5eb58a7c87488c3f1fea606ab484e66a1aff89b0cbc",
                121186,
            ),
            (
                "WN18RR_v3/test.txt",
                "df6690cc2a454c14f79a62e879ba6d688bd666f2cf6168e1d6abffd7a7efc598",
                123083,
            ),
            (
                "WN18RR_v3_ind/train.txt",
                "85b817c364d097793a4b0969fa49d20167345256bf812c978bff381ad3aef492",
                228490,
            ),
            (
                "WN18RR_v3_ind/valid.txt",
                "c0876dafce4cef4c6ef1aa53457fb9f4e40a31a8bf9edbaf05389bfe5ba26f43",
                19638,
            ),
            (
                "WN18RR_v3_ind/test.txt",
                "efad21a11c1cf26a1a4a5fcf7a64c585ccde3c4f8f71de3a00a995d9e8c9938d",
                22225,
            ),
        ),
        counts=(11, 12078, 25901, 3097, 605, 5084, 6327),
    ),
    "wn18rr_v4": _inductive(
        "wn18rr_v4",
        title="WN18RR v4, inductive",
        licence=_WORDNET,
        files=(
            (
                "WN18RR_v4/train.txt",
                "5eace2cdfdffb2b19c6d27c7527ae79b8f4b1b3fb712d9a5049243a13edb95ca",
                313123,
            ),
            (
                "WN18RR_v4/valid.txt",
                "ca1568ca934bbf5ccfeabb3a67010968433c0e5bc1df9b0d3d48279023abd7bd",
                37149,
            ),
            (
                "WN18RR_v4/test.txt",
                "7d4f3226400ea477a5559aa69034df73f0cd314c1a1916963ac000b2cac44e82",
                38408,
            ),
            (
                "WN18RR_v4_ind/train.txt",
                "d5608132dab5873666e249c1de9412608c0e0b2cc0d154b0ffceff1ce067cc03",
                499274,
            ),
            (
                "WN18RR_v4_ind/valid.txt",
                "0928c5cb528ebde49a3be13f3df4d863f95312c247854bea556c65008cc5b54c",
                57918,
            ),
            (
                "WN18RR_v4_ind/test.txt",
                "10ccff353175e6eaaff0b3d7ef7931115845868653ddba0ba6fb5c8dfdab6364",
                58676,
            ),
        ),
        counts=(9, 3861, 7940, 934, 1429, 7084, 12334),
    ),
    "fb15k237": _archive(
        "fb15k237",
        title="FB15k-237",
        licence="MIT (the repository); derived from Freebase (CC BY 2.5)",
        citation=_CONVE,
        file=(
            "FB15k-237.tar.gz",
            "311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8",
            3678603,
        ),
        counts=(237, 14541, 272115, 17535, 20466),
    ),
    "wn18rr": _archive(
        "wn18rr",
        title="WN18RR",
        licence="MIT (the repository); derived from WordNet",
        citation=_CONVE,
        file=(
            "WN18RR.tar.gz",
            "1eb9152f804c140d163462c0d49f65e5a0b30ab5fbb375c5e3353c11a6249060",
            892861,
        ),
        counts=(11, 40943, 86835, 3034, 3134),
    ),
    "umls": _archive(
        "umls",
        title="UMLS semantic network",
        licence="MIT (the repository)",
        citation=_KOK,
        file=(
            "umls.tar.gz",
            "26223aa91f0ec8db2324e0f489b9a4425e04d1d0df72ce5cfd62af4b91aee6fd",
            35648,
        ),
        counts=(46, 135, 5216, 652, 661),
    ),
    "kinship": _archive(
        "kinship",
        title="Kinship of the Alyawarra",
        licence="MIT (the repository)",
        citation=_KOK,
        file=(
            "kinship.tar.gz",
            "a3cb9ca67213eb38133aebc12901195e283d844ebd59f1a6cbf2d4fa12ced4e6",
            42703,
        ),
        counts=(25, 104, 8544, 1068, 1074),
    ),
    "nations": _archive(
        "nations",
        title="Nations and how they deal",
        licence="MIT (the repository)",
        citation=_KOK,
        file=(
            "nations.tar.gz",
            "feb3e3e027103089934ea7dfb67d2048d8a43e65d6757a86f2e037acb66f640b",
            8077,
        ),
        counts=(55, 14, 1592, 199, 201),
    ),
}

INDUCTIVE = frozenset(name for name, known in SETS.items() if "test_facts" in known.counts)
"""Sets whose test graph is another one."""
