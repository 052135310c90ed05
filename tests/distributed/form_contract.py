"""Promise what every training form keeps: a release, a search's target, and a loss that is not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from gang import Trial, as_json

from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED


class FormContract:
    """Tests of a form; its class says which cell trains two epochs, and which one diverges."""

    source: ClassVar[str]  # it calls `stand()` in each step, and validates after each epoch
    diverging: ClassVar[str]  # its loss is not finite from some step on
    epochs_to_diverge: ClassVar[int] = 2
    described: ClassVar[dict[str, Any]] = {}
    slots: ClassVar[int] = 1

    @classmethod
    def trial(cls, folder: Path, source: str = "", **more: Any) -> Trial:
        """Return a trial of the form's cell."""
        return Trial(folder, source or cls.source, slots=cls.slots, described=dict(cls.described), **more)

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, tmp_path_factory: pytest.TempPathFactory) -> Trial:
        """A training without a fault."""
        made = cls.trial(tmp_path_factory.mktemp("whole"))
        attempt = made.run()
        assert attempt.codes == [FINISHED] * cls.slots, attempt.logs()
        return made

    def test_a_released_training_goes_on_to_the_same_bits(self, whole: Trial, tmp_path: Path) -> None:
        released = self.trial(tmp_path, every="1steps")
        first = released.start(hold=4).reaches(3)
        first.tell("release").heard().go().ended()
        assert first.codes == [RELEASED] * self.slots, first.logs()
        assert 3 < released.newest().step < whole.newest().step
        again = released.run(released.pinned())
        assert again.codes == [FINISHED] * self.slots, again.logs()
        assert released.parts() == whole.parts()

    def test_a_training_that_must_leave_at_its_target_comes_back_with_the_same_bits(
        self, whole: Trial, tmp_path: Path
    ) -> None:
        half = whole.newest().step // 2
        paused = self.trial(tmp_path, until=1)
        first = paused.start()
        first.wait(first.committed)
        first.tell("release").ended()
        assert first.codes == [RELEASED] * self.slots, first.logs()
        assert (paused.newest().step, list(first.reports("validation"))) == (half, [half])
        paused.until = 2
        second = paused.run(paused.pinned())
        assert second.codes == [FINISHED] * self.slots, second.logs()
        assert paused.parts() == whole.parts()

    def test_a_training_that_is_told_a_further_target_goes_on_in_place(self, whole: Trial, tmp_path: Path) -> None:
        told = self.trial(tmp_path, until=1)
        ran = told.start()
        ran.wait(ran.committed)
        ran.tell("until 2").ended()
        assert ran.codes == [FINISHED] * self.slots, ran.logs()
        assert told.parts() == whole.parts()
        assert as_json(told.newest().metrics) == as_json(whole.newest().metrics)

    def test_a_loss_that_is_not_finite_and_stays_so_fails_the_trial(self, tmp_path: Path) -> None:
        ran = self.trial(tmp_path, self.diverging, epochs=self.epochs_to_diverge).run()
        assert set(ran.codes) == {1}, ran.logs()
        assert ran.failures()[0].type == "NotFinite"
        assert "--on-nan note trains on" in ran.failures()[0].message
