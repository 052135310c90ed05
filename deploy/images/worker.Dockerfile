# What trainings run in: docker build -f deploy/images/worker.Dockerfile -t daylight-worker:0.1.0 .
# Build the wheel first, in the repository: python -m build --wheel
FROM python:3.12.12-slim-bookworm

# A build of torch for your driver, and further packages that your notebooks import.
ARG TORCH=torch==2.13.0
ARG PACKAGES=""

RUN groupadd --gid 10181 worker && useradd --uid 10181 --gid 10181 --create-home worker \
    && mkdir /var/daylight && chown worker:worker /var/daylight

COPY requirements/worker.txt /tmp/requirements.txt
RUN python -m pip install --no-cache-dir ${TORCH} ${PACKAGES} \
    && python -m pip install --no-cache-dir --require-hashes --no-deps -r /tmp/requirements.txt
COPY dist/daylight-0.1.0-py3-none-any.whl /tmp/
RUN python -m pip install --no-cache-dir --no-deps /tmp/daylight-0.1.0-py3-none-any.whl \
    && python -m pip check && python -c "import kernel_backend.runner.rank_process, kernel_backend.launch.probe" \
    && rm /tmp/requirements.txt /tmp/daylight-0.1.0-py3-none-any.whl

ENV PYTHONUNBUFFERED=1
USER 10181:10181
# Pods of the engine name their own command.
CMD ["python3", "-P", "-m", "kernel_backend.launch.probe"]
