"""The rules over logs in Spark SQL: a second statement of the same rules, with which the first is compared.

It is not an engine: each batch crosses into the JVM and is shuffled twice. The query is written from the rules'
wording, not from their code, with windows where :mod:`rules` folds. The state that the fold carries from batch to batch
is here an aggregate over the batches before:

- the end of the log is the highest last offset so far, and holes are counted;
- a producer's epoch is its highest so far;
- its last sequence is the highest end of its data batches at that epoch so far. Sequences count modulo 2^31, so they
  are first unrolled: the distance from one data batch to the next, the shorter way round, is summed up;
- how many holes there were when the sequence was last certain: at the latest batch that was not only a repetition, or
  at the latest marker that raised the epoch;
- how many holes there were at its latest batch in a transaction, unless a marker came after it.

What is not judged (the first batch of a producer) is left out. The names of segments without a batch are not known
here, so no batch is compared with them. The two agree as long as a producer's sequences never lie 2^30 or more apart,
as in every real log.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIOLATIONS = """
WITH
named AS (
  SELECT broker, topic, `partition`, segment, CAST(left(segment, 20) AS BIGINT) AS first,
         CAST(left(lead(segment) OVER (PARTITION BY broker, topic, `partition` ORDER BY segment), 20) AS BIGINT) AS next
  FROM (SELECT DISTINCT broker, topic, `partition`, segment FROM {batches})
),
placed AS (
  SELECT {batches}.*, base_offset >= first AND base_offset < coalesce(next, 9223372036854775807) AS in_its_segment
  FROM {batches} JOIN named USING (broker, topic, `partition`, segment)
),
located AS (
  SELECT *, max(CASE WHEN in_its_segment THEN last_offset END) OVER before_it + 1 AS log_end,
         control OR base_sequence < 0
           OR topic IN ('__consumer_offsets', '__transaction_state', '__share_group_state') AS unsequenced
  FROM placed
  WINDOW before_it AS (PARTITION BY broker, topic, `partition` ORDER BY segment, position
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
misplaced AS (
  SELECT *, lag(last_offset) OVER in_order AS last_before, lag(is_wrong, 1, false) OVER in_order AS wrong_before
  FROM (SELECT *, NOT in_its_segment OR coalesce(base_offset < log_end, false) AS is_wrong FROM located)
  WINDOW in_order AS (PARTITION BY broker, topic, `partition` ORDER BY segment, position)
),
counted AS (
  SELECT *, count_if(base_offset > log_end) OVER (
    PARTITION BY broker, topic, `partition` ORDER BY segment, position
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS holes
  FROM located WHERE in_its_segment
),
followed AS (
  SELECT *, max(producer_epoch) OVER (
    PARTITION BY broker, topic, `partition`, producer_id ORDER BY segment, position
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS epoch_before
  FROM counted
  WHERE producer_id >= 0 AND (log_end IS NULL OR base_offset >= log_end)
),
valid AS (
  SELECT * FROM followed WHERE epoch_before IS NULL OR producer_epoch >= epoch_before
),
stepped AS (
  SELECT *, CAST(base_sequence AS BIGINT) - lag(base_sequence) OVER (
    PARTITION BY broker, topic, `partition`, producer_id, producer_epoch ORDER BY segment, position) AS step
  FROM valid WHERE NOT unsequenced
),
unrolled AS (
  SELECT *, coalesce(sum(pmod(step + 1073741824, 2147483648) - 1073741824) OVER (
    PARTITION BY broker, topic, `partition`, producer_id, producer_epoch ORDER BY segment, position
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), 0) AS begins
  FROM stepped
),
compared AS (
  SELECT *, max(begins + last_offset - base_offset) OVER (
    PARTITION BY broker, topic, `partition`, producer_id, producer_epoch ORDER BY segment, position
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
  FROM unrolled
),
certain AS (
  SELECT broker, topic, `partition`, segment, position, base_offset, producer_id, producer_epoch, base_sequence,
         unsequenced, holes, begins, highest,
         CASE WHEN highest IS NULL OR begins + last_offset - base_offset > highest THEN holes END AS certain_holes
  FROM compared
  UNION ALL
  SELECT broker, topic, `partition`, segment, position, base_offset, producer_id, producer_epoch, base_sequence,
         unsequenced, holes, NULL, NULL,
         CASE WHEN producer_epoch > epoch_before AND holes = 0 THEN 0 END
  FROM valid WHERE unsequenced
),
inside AS (
  SELECT *, last(CASE WHEN control THEN -1 WHEN transactional THEN holes END, true) OVER (
      PARTITION BY broker, topic, `partition`, producer_id ORDER BY segment, position
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS opened
  FROM valid
),
judged AS (
  SELECT *, coalesce(last(certain_holes, true) OVER (
      PARTITION BY broker, topic, `partition`, producer_id ORDER BY segment, position
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -1) AS known_holes
  FROM certain
),
repeated_or_missing AS (
  SELECT 'duplicate' AS rule, broker, topic, `partition`, segment, position, base_offset, producer_id, producer_epoch,
         base_sequence
  FROM judged WHERE NOT unsequenced AND begins <= highest
  UNION ALL
  SELECT 'gap', broker, topic, `partition`, segment, position, base_offset, producer_id, producer_epoch, base_sequence
  FROM judged
  WHERE NOT unsequenced AND holes <= known_holes
    AND CASE WHEN highest IS NULL THEN base_sequence <> 0 ELSE begins > highest + 1 END
),
of_producers AS (
  SELECT 'stale epoch' AS rule, broker, topic, `partition`, segment, position, base_offset, producer_id,
         producer_epoch, base_sequence
  FROM followed WHERE producer_epoch < epoch_before
  UNION ALL
  SELECT * FROM repeated_or_missing
  UNION ALL
  SELECT 'batch outside transaction', broker, topic, `partition`, segment, position, base_offset, producer_id,
         producer_epoch, base_sequence
  FROM inside LEFT ANTI JOIN repeated_or_missing USING (broker, topic, `partition`, segment, position)
  WHERE NOT transactional AND NOT control AND opened = holes
),
led AS (
  SELECT *, lag(leader_epoch) OVER (
    PARTITION BY broker, topic, `partition` ORDER BY segment, position) AS leader_epoch_before
  FROM counted WHERE leader_epoch >= 0 AND (log_end IS NULL OR base_offset >= log_end)
)
SELECT 'leader epoch went back' AS rule, broker, topic, `partition`, segment, position, base_offset, producer_id,
       producer_epoch, base_sequence
FROM led LEFT ANTI JOIN of_producers USING (broker, topic, `partition`, segment, position)
WHERE leader_epoch < leader_epoch_before
UNION ALL
SELECT 'order', broker, topic, `partition`, segment, position, base_offset, producer_id, producer_epoch,
       base_sequence
FROM misplaced WHERE is_wrong AND NOT (wrong_before AND base_offset > last_before)
UNION ALL
SELECT * FROM of_producers
"""


def violations(batches: "DataFrame") -> "DataFrame":
    """The violations among batches of the data source ``kafka_log``, at its granularity ``batches``.

    Returns:
        rule, broker, topic, partition, segment, position, base_offset, producer_id, producer_epoch, base_sequence
    """
    return batches.sparkSession.sql(VIOLATIONS, batches=batches)
