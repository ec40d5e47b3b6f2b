#!/bin/sh
# A job (`materialize --continuous`, `audit --every 1h`); or, as Spark's own image takes them, the driver that spark-submit
# or an operator starts on Kubernetes, and an executor.
set -eu

spark_home() {
    python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)'
}

case "${1:-}" in
driver)
    shift
    export SPARK_DIST_CLASSPATH="$PIPELINE_SPARK__JARS_DIRECTORY/*"
    exec "$(spark_home)/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        "$@"
    ;;
executor)
    # What Spark's driver puts into the environment of its executors' pods, as Spark's own image hands it on.
    set --
    for number in $(env | sed -n 's/^SPARK_JAVA_OPT_\([0-9]*\)=.*/\1/p' | sort -n); do
        set -- "$@" "$(printenv "SPARK_JAVA_OPT_$number")"
    done
    exec java "$@" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$(spark_home)/jars/*:$PIPELINE_SPARK__JARS_DIRECTORY/*:$PWD" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*) exec python -m log_partitioner_pipeline "$@" ;;
esac
