"""What is known of MoleculeNet's tables."""

from __future__ import annotations

from zoo.datasets.facts import DatasetFacts, Property, Source
from zoo.datasets.moleculenet_tasks import MUV, SIDER, TOX21, TOXCAST

COLUMNS = {
    "esol": "measured log solubility in mols per litre",
    "freesolv": "expt",
    "lipophilicity": "exp",
}
"""The label's column of a set where the property is called otherwise."""

HEADERS = {
    "esol": ("Compound ID", "*", "smiles"),
    "freesolv": ("iupac", "smiles", "*"),
    "lipophilicity": ("CMPD_CHEMBLID", "*", "smiles"),
    "bbbp": ("num", "name", "*", "smiles"),
    "bace": ("smiles", "CID", "*"),
    "clintox": ("smiles", "*"),
    "sider": ("smiles", "*"),
    "tox21": ("*", "mol_id", "smiles"),
    "toxcast": ("smiles", "*"),
    "muv": ("*", "mol_id", "smiles"),
    "hiv": ("smiles", "activity", "*"),
}
"""Columns of made-up tables in the source's order; * are the labels."""

_COLLECTION = (
    "https://raw.githubusercontent.com/GLambard/Molecules_Dataset_Collection/"
    "beb35cd0b76db5adef6cb1fa55807e4cd309aaed/originals/{}"
)
_DEEPCHEM = (
    "https://raw.githubusercontent.com/deepchem/deepchem/fbe3b911a94a6eb8c84c1a9e7ac67a472c49ea80/"
)
_WU = "Z. Wu et al., Chemical Science 9, 513 (2018)"
_SPLIT = (
    "the scaffold split is OGB's (largest sets of molecules with one scaffold first), made of all "
    "rows of the table; its hash is of row numbers"
)
_FETCHED = "the addresses it can be fetched from were not tried where this was written"


def activities(description: str, *names: str) -> tuple[Property, ...]:
    """Binary properties of which a model predicts the probability."""
    return tuple(
        Property(name=name, unit="probability", description=description, kind="binary")
        for name in names
    )


def _set(
    name: str,
    *,
    title: str,
    citation: str,
    properties: tuple[Property, ...],
    source: Source,
    counts: tuple[int, int, int],
    metric: str,
    splits: dict[str, str],
    notes: tuple[str, ...] = (),
) -> DatasetFacts:
    rows, refused, missing = counts
    return DatasetFacts(
        name=f"moleculenet.{name}",
        title=title,
        licence="MIT",
        citation=f"{citation}; {_WU}",
        properties=properties,
        sources=(source,),
        counts={
            "rows": rows,
            "refused": refused,
            "molecules": rows - refused,
            "unknown": missing,
        },
        splits=splits,
        notes=(*notes, _SPLIT, _FETCHED),
        metric=metric,
    )


def _from_collection(filename: str, sha256: str, size: int) -> Source:
    return Source(
        filename=filename, sha256=sha256, size=size, mirrors=(_COLLECTION.format(filename),)
    )


SETS = {
    "esol": _set(
        "esol",
        title="ESOL",
        citation="J. S. Delaney, J. Chem. Inf. Comput. Sci. 44, 1000 (2004)",
        properties=(
            Property(name="logS", unit="log mol/L", description="solubility in water, measured"),
        ),
        source=_from_collection(
            "ESOL_delaney-processed.csv",
            "8c06a76f0c6487d29ab0f903e6a7a7139f189ab3c1178f159c8be8964602f189",
            96699,
        ),
        counts=(1128, 0, 0),
        metric="rmse",
        splits={
            "scaffold": "97cb33e10008a06979b04cfdfd9fc3b3acef2393ffdccabaa9eec49bd128c8d8",
            "random-0": "6bb22f7067fa6b949784df83529971c8d35104bbebe1c9fcdd2613a6a9fd85e4",
            "random-1": "a393f2341c6721b876bafc9913ecc5f21690074d1ee870b488cce5c32d1d4b27",
            "random-2": "f22b169e2300eabac847b1a391e1443518534b1f8c9e25c6268401eb17dba9f1",
        },
    ),
    "freesolv": _set(
        "freesolv",
        title="FreeSolv",
        citation="D. L. Mobley, J. P. Guthrie, J. Comput.-Aided Mol. Des. 28, 711 (2014)",
        properties=(
            Property(
                name="dG_hyd",
                unit="kcal/mol",
                description="free energy of hydration, measured",
                reference="the gas phase is zero",
            ),
        ),
        source=_from_collection(
            "FreeSolv_SAMPL.csv",
            "ab5895d914ee87cb563bd7b9611e869527bba45bec6b014d34dc495a0f9dcb72",
            32060,
        ),
        counts=(642, 0, 0),
        metric="rmse",
        splits={
            "scaffold": "8df140e72f7ebf68a34ae4f877c1ed0231a23638c1216791551a7be8973e42bd",
            "random-0": "d1e66499eba1ac89b78eb8f1a91a50133987cefe1377a78e00969a61776669ea",
            "random-1": "0fd74d327ab51761a90b5d6e0d9d9cfea4aa77fdda9d0ed290c4039847bc4257",
            "random-2": "6b0cde028cc5dec3629f2027bd97fbe03943ec53d587d808431f6d37f072e9be",
        },
    ),
    "lipophilicity": _set(
        "lipophilicity",
        title="Lipophilicity",
        citation="A. Hersey, ChEMBL deposited data set CHEMBL3301361 (2015)",
        properties=(
            Property(
                name="logD",
                unit="log unit",
                description="distribution between octanol and water at pH 7.4, measured",
            ),
        ),
        source=_from_collection(
            "Lipophilicity.csv",
            "aed41590cb30609d51d8e08ad3ff06495a76e80e211358801f596b10da69bacd",
            282606,
        ),
        counts=(4200, 0, 0),
        metric="rmse",
        splits={
            "scaffold": "f7e5aa69b972e2173801e3f568951713bb859a4482bf0371418df1f724c81e55",
            "random-0": "606dcdd3400c2077f3b4bd3d9f28e5aae6f2a24cbeb9b820ecd48f1681d12e89",
            "random-1": "27f111785e5d261b1aeb32cd54821a2cefc0b35ca3093b44de8e44d375a9fbf1",
            "random-2": "63a257b53ec8eeae41db9faf6603f4209509bbcc7df277d13c9d14318b77f6ce",
        },
    ),
    "bbbp": _set(
        "bbbp",
        title="BBBP",
        citation="I. F. Martins et al., J. Chem. Inf. Model. 52, 1686 (2012)",
        properties=activities("passes the blood-brain barrier", "p_np"),
        source=_from_collection(
            "BBBP.csv",
            "d07a38487aeac5cee5508413e468043ef3097451d2a112701c2d60be9ec6b662",
            148743,
        ),
        counts=(2050, 11, 0),
        metric="roc_auc",
        splits={
            "scaffold": "00018071087e2c593a55bb328e58c9c9405847f2a151aefb941b607f1173f65d",
            "random-0": "18f96dcd2afd8b3c084a1e7dc3072c84a49db75cee47f648b5224d94d4d0876d",
            "random-1": "1253f2c75a1cd8439bb05893155295b770fcbc3b8fefca66b97c65e1ad41d010",
            "random-2": "060cc7333e8a2adab4d064f7e405876644496eca2faeccb7d6c48055cf6f19b8",
        },
    ),
    "bace": _set(
        "bace",
        title="BACE",
        citation="G. Subramanian et al., J. Chem. Inf. Model. 56, 1936 (2016)",
        properties=activities("inhibits human beta-secretase 1", "Class"),
        source=_from_collection(
            "bace.csv",
            "d36f089649984f7bfaa4589ccc3ae907b831780a01ccfd065a5b604939e1a5df",
            3897770,
        ),
        counts=(1513, 0, 0),
        metric="roc_auc",
        splits={
            "scaffold": "51ea7c08dad26d69b504fec385d8c57d28362fb0bf273e671ad198a42baf4ad6",
            "random-0": "06e6fc3953522e6fa0ca6a94b50122ea906a507f8d9115c98c1c28c10700f83e",
            "random-1": "cc101030d86594ba8ed74159a9be8174d0dec5655fe9025ad265bd85906c8a99",
            "random-2": "eece210c46dc3ce03e7c72de5a99eaf6824804b81d622ce06783584a63bc42a6",
        },
    ),
    "clintox": _set(
        "clintox",
        title="ClinTox",
        citation="K. M. Gayvert et al., Cell Chemical Biology 23, 1294 (2016)",
        properties=(
            *activities("approved by the FDA", "FDA_APPROVED"),
            *activities("failed clinical trials for toxicity", "CT_TOX"),
        ),
        source=_from_collection(
            "clintox.csv",
            "0bd655529cebe6d94addd48b8afdab6fa0438b4503a470866231793f235d7e61",
            95511,
        ),
        counts=(1484, 4, 0),
        metric="roc_auc",
        splits={
            "scaffold": "994d8c5b3ce97c92845f5c38898a7632dc2e7144d71fc1ea44d3dc9771424de7",
            "random-0": "aa7598c8ddeb4b377bd777b48affd1fd9a9b14a6d97d566fa3ec54c83fcbf38a",
            "random-1": "b629a2e166dee825daee3abe961927971c50e3c6419115cbcf033d5b7471c671",
            "random-2": "ef147052f861a607aedf7a20d653d4e95c5fb97f41c03d9087b6f6509b739b05",
        },
    ),
    "sider": _set(
        "sider",
        title="SIDER",
        citation="M. Kuhn et al., Nucleic Acids Research 44, D1075 (2016)",
        properties=activities("side effect of a marketed drug", *SIDER),
        source=_from_collection(
            "sider.csv",
            "71efc6ac4ca82d6545bc512509863281be0f17234afd7adaf71a71899988302e",
            183743,
        ),
        counts=(1427, 0, 0),
        metric="roc_auc",
        splits={
            "scaffold": "9994ea8b0dfc01edfadbb47884ebe589da867eeb52e0bd7145121258458a7030",
            "random-0": "8ec348895c2cdb2c401f2b8746780db48f488e941673ab3bd46366c0d1d5c878",
            "random-1": "bfdaae747e98b17b3979f89a1b068121b87a828002780dc5218e150dbd451f8a",
            "random-2": "299b7e8c16a4b232052a8cf12dad98c5cb55c8f8764ad160f15e04d0eeaf12f8",
        },
    ),
    "tox21": _set(
        "tox21",
        title="Tox21",
        citation="Tox21 Data Challenge (2014)",
        properties=activities("active in a toxicity assay", *TOX21),
        source=_from_collection(
            "tox21.csv",
            "7d7e7facd853a63e79ddce4e9c3fcb7a0d83a1c300b603031c0f2c64fbe77761",
            525119,
        ),
        counts=(7831, 8, 16026),
        metric="roc_auc",
        splits={
            "scaffold": "970f13605e0b2c080fa7617af31b28e3cdc9b20fde0ba7876c8b9eb9f1447795",
            "random-0": "b0cd87915ca212fbbc071c98dbdcc316926a624ccefa9c850bcd7b1b3eed432f",
            "random-1": "68f7567ed507d91b4ea5930fbe48d5913fdfb4c9629a195088cf9568ee35102d",
            "random-2": "cf727ef842f7c5778532fd540a1efbbf15b0ccbc0e2cbefcb503076b52d9ae3c",
        },
    ),
    "toxcast": _set(
        "toxcast",
        title="ToxCast",
        citation="A. M. Richard et al., Chem. Res. Toxicol. 29, 1225 (2016)",
        properties=activities("active in a toxicity assay", *TOXCAST),
        source=Source(
            filename="toxcast_data.csv.gz",
            sha256="56041515e0bb63c1787a26ecdbeb2bd7ae1f538681caa1b03f768853cf81b1a7",
            size=405299,
            mirrors=(f"{_DEEPCHEM}examples/toxcast/processing/toxcast_data.csv.gz",),
        ),
        counts=(8615, 18, 3777060),
        metric="roc_auc",
        splits={
            "scaffold": "39652495b8ef35c2328b17a4490acd02cb396b0aceb663896e85d454eb560be5",
            "random-0": "97df0effa5e53be131c107d77d7c53b92ada8297323897fcfa1a284efd4396d0",
            "random-1": "9b9e39df5f63817319d043673cc2100049b5d0e92a56e069bfb0ebce7666061d",
            "random-2": "b783ecc3afc3f84979b9c3c938f219f882fab0f0d02d06f4100dc29d3ad3538f",
        },
    ),
    "muv": _set(
        "muv",
        title="MUV",
        citation="S. G. Rohrer, K. Baumann, J. Chem. Inf. Model. 49, 169 (2009)",
        properties=activities("active in a PubChem assay", *MUV),
        source=Source(
            filename="muv.csv.gz",
            sha256="93c8b4a37c5996c76e57d5f3f065fb8b7cf1c19067011eff2293fd2a94ce274a",
            size=1749843,
            mirrors=(f"{_DEEPCHEM}datasets/muv.csv.gz",),
        ),
        counts=(93127, 0, 1333192),
        metric="ap",
        splits={
            "scaffold": "6fdb5599c72df9452728c6231c9d429d46d25b73e616d774f2e42c830a8fe5d0",
            "random-0": "805339f2118075a09a18f3b129d93fc463b921c7fff37646b5b7b5dbe683ee93",
            "random-1": "f673b1096ad0530908439371bbae0f4bdd2f0083c9c6711997c40f544468df47",
            "random-2": "f7cc493d2d6194321c3000877189f4671b628c3fd7b520df8e9596b243fbd4ea",
        },
        notes=("Hu et al. (2020) report ROC-AUC, MoleculeNet average precision",),
    ),
    "hiv": _set(
        "hiv",
        title="HIV",
        citation="AIDS Antiviral Screen Data, National Cancer Institute (2004)",
        properties=activities("inhibits HIV replication", "HIV_active"),
        source=_from_collection(
            "HIV.csv",
            "54713c3205055055ea4214e8c4b0d22d93af7e54ad2c48f4edc866e161e57262",
            2152716,
        ),
        counts=(41127, 7, 0),
        metric="roc_auc",
        splits={
            "scaffold": "2037f6e4bf572a6d460a6dc734e5956b8e1bbf397dc9d5a7228a5172a863e5af",
            "random-0": "930b13eaab2bbdfe3c27cc97771561fd00bfcb98d24120dba15f38c4502fcc8e",
            "random-1": "722df6bb09d1dafbddd13d50ec4f781b1da7c2ae8a73d520c719425f8467d957",
            "random-2": "8eb57d2084a747a922f6441d7ec1c4546e016142842a544ce87968bd5e68050d",
        },
    ),
}
