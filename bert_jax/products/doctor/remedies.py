"""Remedies after a diagnosis: flags of `bert-jax pretrain`, and changes of the text."""

from collections.abc import Iterator

from bert_jax.config.language import language_name, usual_encoding
from bert_jax.config.run import RunConfig
from bert_jax.config.wording import counted
from bert_jax.instances.statistics import MANY_RANDOM, MOST_RANDOM
from bert_jax.products.doctor.diagnosis import (
    Change,
    Diagnosis,
    MixtureDiagnosis,
    SourceDiagnosis,
    Training,
    most_epochs,
    own_cuts,
)
from bert_jax.products.doctor.survey import BOILERPLATE, DUPLICATES, LONG_LINES, UNDECODED, Fault
from bert_jax.records.filters import are_same_language, is_identifiable
from bert_jax.records.line_kinds import KINDS
from bert_jax.records.sources import resolved_source
from bert_jax.system.figures import three_digits
from bert_jax.text.identification import UNDETERMINED, UNSURE

_MOST_OTHER = 0.01
"""Share of the text that may be in another language than declared."""
_MOST_FAULTY = 0.001
"""Share of the documents that may have a fault."""
_MOST_BOILERPLATE, _HEADING_CHARACTERS = 0.01, 40
"""Share of the characters that may be in lines of many documents; length from which on a line is no heading."""
_MOST_PADDING, _WORTH_PACKING = 0.1, 0.03
"""Share of the positions that may be padding; share of the positions that packing must save to be worth it."""
_MOST_UNKNOWN_PIECES = 0.005
"""Share of the text's pieces that may be unknown."""
_WORTH_PIECES = 1.1
"""A new vocabulary is worth it if the given one has this many times as many pieces a word."""
_OF_FAULT = {kind.name: kind.remedy for kind in KINDS} | {LONG_LINES: "put a line end after each paragraph"}
_SIZES = {"large": 335e6, "base": 110e6, "medium": 41e6, "small": 29e6, "mini": 11e6, "tiny": 4.4e6}
"""Parameters of the published sizes, whose configs have these names, largest first."""


def changes(diagnosis: Diagnosis | MixtureDiagnosis, config: RunConfig, follows_text: bool = False) -> Iterator[Change]:
    """Yields what to change, most important first. `follows_text`: whether sizes and steps of `config` were derived
    from the text, as those of `scratch_small`."""
    if isinstance(diagnosis, MixtureDiagnosis):
        reasons: dict[str, list[str]] = {}
        for source in diagnosis.sources:
            for each in _of_source(source, config.of_source(source.text.source, source.text.language)):
                reasons.setdefault(each.change, []).append(f"{source.text.source}: {each.reason}")
        for change, of in reasons.items():
            others = f" (and {counted(len(of) - 1, 'other cases')})" if len(of) > 1 else ""
            yield Change(reason=of[0] + others, change=change)
        yield from _of_size(diagnosis.vocabulary_size, all(source.whole for source in diagnosis.sources), config)
        yield from _of_shares(diagnosis, config)
    else:
        yield from _of_source(diagnosis, config)
    yield from _of_training(diagnosis.training, config, follows_text)


def _of_source(diagnosis: SourceDiagnosis, config: RunConfig) -> Iterator[Change]:
    yield from _languages(diagnosis, config)
    for fault in diagnosis.faults:
        yield from _of_fault(fault, diagnosis, config)
    yield from _of_vocabulary(diagnosis, config)
    yield from _of_sequences(diagnosis, config)


def _of_shares(diagnosis: MixtureDiagnosis, config: RunConfig) -> Iterator[Change]:
    """What to change of a mixture whose sources are seen too often, while the whole isn't."""
    most = most_epochs(config)
    often = [source for source in diagnosis.shares if source.epochs > most]
    if often and diagnosis.training.epochs <= most:
        named = ", ".join(f"{source.source} {three_digits(source.epochs)} times" for source in often)
        of_weights = "--data.weights with a smaller number for each of them"
        change = of_weights if config.data.weights else "a higher --data.smoothing, up to 1"
        reason = f"the training sees {named}; more than {most} add nothing"
        yield Change(reason=reason, change=f"{change}, or more text in that language")


def _languages(diagnosis: SourceDiagnosis, config: RunConfig) -> Iterator[Change]:
    declared = diagnosis.text.language
    if not is_identifiable(declared):
        return
    known = [share for share in diagnosis.languages if share.name not in (UNSURE, UNDETERMINED)]
    if (named := sum(share.share for share in known)) < 0.5:
        reason = (
            f"{1 - named:.1%} of the text is in no language that can be identified, and {language_name(declared)} can"
        )
        yield Change(reason=reason, change="--data.language with the code of the text's own language")
    if known and not are_same_language(known[0].name, declared) and known[0].share > 0.5:
        most = known[0]
        reason = f"{most.share:.1%} of the text is in {language_name(most.name)}, not in {language_name(declared)}"
        yield Change(reason=reason, change=f"--data.language {most.name}")
        declared = most.name
    others = [share for share in known if not are_same_language(share.name, declared) and share.share >= _MOST_OTHER]
    if others and not config.data.language_filter:
        names = ", ".join(f"{share.share:.1%} in {language_name(share.name)}" for share in others)
        codes = " ".join(share.name for share in others)
        keep = f"a source of its own for each language, with --data.language {declared} {codes}"
        change = f"to drop it, --data.language-filter; to keep it, {keep}"
        yield Change(reason=f"part of the text is in other languages: {names}", change=change)


def _of_fault(fault: Fault, diagnosis: SourceDiagnosis, config: RunConfig) -> Iterator[Change]:
    like = f'like "{fault.example}"'
    if fault.fault == UNDECODED:
        encoding = usual_encoding(diagnosis.text.language)
        change = "mend the program that writes the records: they may hold halves of surrogate pairs"
        if resolved_source(config.data.source[0]).startswith("text:"):
            change = f"convert them, for example by iconv -f {encoding} -t UTF-8 OLD > NEW"
        yield Change(reason=f"the sample has {counted(fault.count, 'lines')} not in UTF-8", change=change)
    elif fault.fault == BOILERPLATE:
        is_long = len(fault.example) >= _HEADING_CHARACTERS
        if not config.data.drop_boilerplate and (diagnosis.boilerplate_share >= _MOST_BOILERPLATE or is_long):
            reason = f"{diagnosis.boilerplate_share:.1%} of the text is in lines that many documents have, {like}"
            yield Change(reason=reason, change="--data.drop-boilerplate")
    elif fault.fault == DUPLICATES:
        # A copy is seen as one only if the sample has its original, too.
        least = "" if diagnosis.whole else "at least "
        if not config.data.deduplicate and (fault.share or 0) >= _MOST_FAULTY * diagnosis.text.sample_share:
            reason = f"{least}{fault.share:.2%} of the documents are copies, {like}"
            change = "--data.deduplicate exact (or near, which finds similar documents, too)"
            yield Change(reason=reason, change=change)
    elif fault.fault in _OF_FAULT and (fault.share or 0) >= _MOST_FAULTY:
        reason = f"{fault.fault} in {fault.share:.1%} of the documents, {like}"
        yield Change(reason=reason, change=_OF_FAULT[fault.fault])


def _of_vocabulary(diagnosis: SourceDiagnosis, config: RunConfig) -> Iterator[Change]:
    used, best = diagnosis.pieces[0], diagnosis.pieces[-1]
    if diagnosis.merged:
        other = "continue a model that keeps them, such as a cased or multilingual one, or begin a new one"
        yield Change(reason=diagnosis.merged, change=other if config.init else "--vocabulary.strip-accents False")
    unknown, split = used.unknown > _MOST_UNKNOWN_PIECES, used.pieces_a_word > _WORTH_PIECES * best.pieces_a_word
    if used is not best and (unknown or split):
        reason = f"{used.unknown:.2%} of the pieces are unknown to the given vocabulary, and it has "
        reason += f"{used.pieces_a_word:.2f} pieces a word; one trained on the text has {best.unknown:.2%} and "
        other = "give the model frequent words of the text by bert-jax vocab --extend, or begin a new model"
        change = other if config.init else f"train one: --vocabulary.size {best.pieces} without --vocabulary.file"
        yield Change(reason=f"{reason}{best.pieces_a_word:.2f}", change=change)
    elif unknown:
        reason = f"{used.unknown:.1%} of the pieces are unknown to a vocabulary that is trained on the text"
        yield Change(reason=reason, change="--vocabulary.kind byte_bpe")
    yield from _of_size(diagnosis.vocabulary_size, diagnosis.whole, config)


def _of_size(size: int | None, whole: bool, config: RunConfig) -> Iterator[Change]:
    """What to change of a vocabulary that got `size` pieces, from a text that was looked at as a `whole` or not."""
    if size and size > config.vocabulary.size:
        reason = f"the characters of the text need more than {config.vocabulary.size:,} pieces"
        yield Change(reason=reason, change=f"--vocabulary.size {size}, or a lower --vocabulary.character-coverage")
    elif size and whole:
        reason = f"the text is too small for {config.vocabulary.size:,} pieces"
        yield Change(reason=reason, change=f"--vocabulary.size {size}")


def _of_sequences(diagnosis: SourceDiagnosis, config: RunConfig) -> Iterator[Change]:
    own = own_cuts(config, diagnosis.cuts)
    worst = max(own, key=lambda cut: cut.padding)
    packed = next(cut for cut in diagnosis.cuts if cut.packed and cut.length == worst.length)
    if worst.padding > _MOST_PADDING and worst.padding - packed.padding > _WORTH_PACKING:
        reason = (
            f"{worst.padding:.0%} of the positions at {worst.length} tokens are padding, {packed.padding:.1%} packed"
        )
        yield Change(reason=reason, change="--data.packed")
    if (most := max(cut.random_pairs for cut in own)) > MOST_RANDOM:
        yield Change(reason=MANY_RANDOM.format(most), change="--objective.pair none")


def _of_training(training: Training, config: RunConfig, follows_text: bool) -> Iterator[Change]:
    _, most = training.text_parameters
    # A model that goes on has learned from other text, too.
    if training.parameters > most and not (config.init or follows_text):
        name = next((name for name, size in _SIZES.items() if size <= most), None)
        reason = f"the text suffices for at most {most / 1e6:,.3g}M parameters, and the model has "
        change = "give more text, or take a smaller model: "
        change += f"bert-jax pretrain {name}" if name else "--model.num-layers, --model.hidden-size"
        yield Change(reason=f"{reason}{training.parameters / 1e6:,.3g}M", change=change)
    if training.epochs > (epochs := most_epochs(config)):
        share = epochs / training.epochs
        flags = [
            f"--phases.{number}.steps {max(round(share * phase.steps), 1)}"
            for number, phase in enumerate(config.phases)
        ]
        reason = f"the text is seen {three_digits(training.epochs)} times; more than {epochs} add nothing"
        yield Change(reason=reason, change="a smaller --passes" if follows_text else " ".join(flags))
