"""Back-translation (nmt.backtranslate) in five steps. Each step writes to the folder `run_dir`:

1. corpus/: the real (not synthetic) sentence pairs, in files such as train.SOURCE and train.TARGET
2. reverse/: the target-to-source model, a run of nmt.train; skipped if synthetic.model is set
3. translations: translations of the monolingual text with log-probabilities, one per line
4. synthetic.…: the selected synthetic pairs; mixture.yml: proportion of synthetic and real pairs
5. model/: the final model, a run of nmt.train on the mixture

With synthetic.direction=both, step 2 trains several models in each direction (forward-1/,
backward-1/, …), and step 3 writes the translations of each model to a separate file.

An interrupted step is resumed; a finished step is not repeated.

Modules in reading order: steps, real_pairs, step_settings, synthetic_pairs.
"""
