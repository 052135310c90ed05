# The service: docker build -f deploy/images/service.Dockerfile -t daylight-service:0.1.0 .
# Build the wheel first, in the repository: python -m build --wheel
FROM python:3.12.12-slim-bookworm

RUN groupadd --gid 10180 daylight && useradd --uid 10180 --gid 10180 --home-dir /srv/daylight --create-home daylight

COPY requirements/service.txt /tmp/requirements.txt
RUN python -m pip install --no-cache-dir --require-hashes --no-deps -r /tmp/requirements.txt
COPY dist/daylight-0.1.0-py3-none-any.whl /tmp/
RUN python -m pip install --no-cache-dir --no-deps /tmp/daylight-0.1.0-py3-none-any.whl \
    && python -m pip check && rm /tmp/requirements.txt /tmp/daylight-0.1.0-py3-none-any.whl

ENV PYTHONUNBUFFERED=1 DAYLIGHT_HOME=/srv/daylight/home
USER 10180:10180
WORKDIR /srv/daylight
CMD ["daylight", "serve"]
